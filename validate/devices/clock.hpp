// Time on all ranks: every rank's own clock, and by how much it is ahead of rank 0's.
#pragma once

#include <mpi.h>

namespace foreplan {

// Seconds of this machine's steady clock.
double now();

// Seconds that this rank's clock is ahead of rank 0's: half the way of the fastest of some round trips between the first ranks of the
// nodes; ranks of a node share its clock. `node`: the communicator of this node's ranks. Collective.
double clock_offset(MPI_Comm world, MPI_Comm node);

// Returns on every rank at the same moment, soon, which is the result (on the own clock). Collective.
double start_together(MPI_Comm world, double offset);

} // namespace foreplan

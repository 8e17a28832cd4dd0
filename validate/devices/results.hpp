// What training has left on the ranks, gathered: to compare runs and plans.
#pragma once

#include "interpreter/difference.hpp"
#include "validate/devices/runner.hpp"

namespace foreplan {

struct Results {
  Reference reached; // loss of the last step and weights
  // Largest difference between what ranks hold that should be the same (losses, masters of replicated and of tied parameters) and
  // between parameters and the masters that they come from. NaN when something is NaN.
  double replica_difference = 0;
};

// On rank 0 of `world`; empty on the others. Collective.
Results gather_results(Program const& program, Runner const& runner, MPI_Comm world);

} // namespace foreplan

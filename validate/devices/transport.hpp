// Communication of a rank: collectives and transfers over MPI, driven by the thread that calls until they have ended.
#pragma once

#include "validate/devices/backend.hpp"
#include "validate/devices/element.hpp"

#include <mpi.h>

namespace foreplan {

// Where an op's data goes: the members of a collective, in the order of their index in the group; or the peer of a
// transfer in a communicator of all ranks.
struct Endpoint {
  MPI_Comm communicator = MPI_COMM_NULL;
  int peer = -1;
  int tag = 0;
};

// Runs one communication op (is_communication) of this rank: `source` is what it reads, `target` what it writes, nullptr
// where it has none; in place when both have one address. Returns when the result is there and the source may be changed.
// Each endpoint may be used by one thread at a time. Sums of 16-bit types are rounded at every addition.
// Throws std::runtime_error.
void communicate(Op const& op, Storage storage, Operand const* source, Operand const* target, Endpoint const& endpoint);

} // namespace foreplan

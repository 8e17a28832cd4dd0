// The demand of Adam on the host's processors, for offloaded optimizer states.
#pragma once

#include "cluster/cluster.hpp"
#include "timing/demand.hpp"

#include <cstdint>

namespace foreplan {

// Master parameter and two moments in 32 bits, read and written; the gradient is read, the device's copy of the parameter
// written.
struct CpuAdam {
  std::int64_t parameters = 0;
  int gradient_bytes = 4;  // of an element
  int parameter_bytes = 2; // of the copy for the device
  int cores = 1;           // that work on it
};

// One flow of all bytes that pass the memory, at the least of the cores' and the memory's rate: vectorised Adam runs at the
// rate of STREAM (notes: hardware.md C). Its link, host_memory_link(), is the caller's to fill in; the ranks of a socket
// share it. Throws InputError for a profile without the host.
Demand cpu_adam_demand(Cluster const& cluster, CpuAdam const& adam);

} // namespace foreplan

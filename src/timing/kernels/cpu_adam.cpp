#include "timing/kernels/cpu_adam.hpp"

#include "timing/copies.hpp"

#include <algorithm>

namespace foreplan {

Demand cpu_adam_demand(Cluster const& cluster, CpuAdam const& adam) {
  constexpr int states = 3 * 2 * 4; // bytes of a parameter's three numbers, read and written
  BytesPerSecond const memory = capacity(cluster, host_memory_link(cluster, Rank(0)));
  BytesPerSecond const cores = cluster.profile.node.host->core_bandwidth * adam.cores;
  Bytes const bytes(static_cast<double>(adam.parameters) * (states + adam.gradient_bytes + adam.parameter_bytes));
  Demand demand;
  demand.issue = demand.lead = cluster.profile.issue;
  demand.device = TransferDemand{{{Seconds(0), {{bytes, std::min(memory, cores), {}}}}}};
  return demand;
}

} // namespace foreplan

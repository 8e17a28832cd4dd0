#include "timing/collectives/measured.hpp"

#include <algorithm>

namespace foreplan {

OpCost const* measured_cost(HardwareProfile const& profile, Op const& op, Operands const& operands) {
  return profile.ops ? find(*profile.ops, to_string(op.kind), to_string(working_dtype(operands))) : nullptr;
}

Demand measured_demand(Op const& op, Operands const& operands, HardwareProfile const& profile, OpCost const& cost,
                       int members) {
  double const wire = wire_bytes(op, operands, members).value();
  int const rounds = op.kind == OpKind::all_reduce ? 2 : 1;
  double const latency = profile.collective_base.value() + rounds * (members - 1) * cost.fixed;
  double const moving = std::max(cost.seconds(0, wire) - cost.fixed, 1e-12); // a flow takes time
  Demand demand;
  demand.issue = demand.lead = profile.issue;
  demand.device = TransferDemand{{{Seconds(latency), {{Bytes(wire), BytesPerSecond(wire / moving), {}}}}}};
  demand.sm_share = static_cast<double>(profile.collective_multiprocessors) / profile.chip.multiprocessors;
  demand.memory_bandwidth_share = std::min(1.0, 2 * wire / (latency + moving) / profile.chip.memory_bandwidth.value());
  demand.evidence = profile.ops->evidence;
  demand.band = cost.band;
  return demand;
}

} // namespace foreplan

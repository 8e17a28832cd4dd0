// Communication inside a node whose cost was measured op by op (cluster/op_costs.hpp).
#pragma once

#include "timing/collectives/ring.hpp"

namespace foreplan {

// The measured cost of this kind and dtype; nullptr: there is none.
OpCost const* measured_cost(HardwareProfile const& profile, Op const& op, Operands const& operands);

// `members` of one node. Latency: the fixed cost of each step of a ring (2 (n - 1) of an all-reduce, n - 1 of the others,
// one of a transfer) + collective_base; the rest at the measured rate of wire bytes.
Demand measured_demand(Op const& op, Operands const& operands, HardwareProfile const& profile, OpCost const& cost,
                       int members);

} // namespace foreplan

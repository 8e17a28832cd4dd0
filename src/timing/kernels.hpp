// Demand of a compute op: a roofline with one efficiency a kernel class.
#pragma once

#include "cluster/cluster.hpp"
#include "program/amounts.hpp"
#include "timing/demand.hpp"

namespace foreplan {

// Seconds alone = max(flops / (peak * efficiency), bytes / (bandwidth * efficiency)) + the kernel's fixed time, over the
// device's speed. `wait` asks for nothing.
Demand kernel_demand(Op const& op, Operands const& operands, HardwareProfile const& profile, double device_speed);

} // namespace foreplan

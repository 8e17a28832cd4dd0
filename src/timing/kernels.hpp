// Demand of a compute op: how long its kernel runs alone, what it takes of the device meanwhile, and the host's time.
#pragma once

#include "cluster/cluster.hpp"
#include "program/amounts.hpp"
#include "timing/demand.hpp"
#include "timing/kernels/gemm.hpp"

namespace foreplan {

// The product of a linear layer's forward pass, input or weight gradient.
GemmShape linear_shape(Op const& op, Operands const& operands);

// Seconds alone, over the device's speed. What the profile has measured of this kind and dtype (cluster/op_costs.hpp) + the
// fixed time. Else: matrix products and fused attention by the formulas of kernels/ with the
// profile's kernel parameters; without those, max(flops / (peak * efficiency), bytes / (bandwidth * efficiency)) + the
// kernel's fixed time. Kernels bound by memory: bytes over the efficiency's rate + the fixed time. `wait` asks for
// nothing.
Demand kernel_demand(Op const& op, Operands const& operands, HardwareProfile const& profile, double device_speed);

} // namespace foreplan

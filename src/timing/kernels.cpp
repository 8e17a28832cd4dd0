#include "timing/kernels.hpp"

#include <algorithm>

namespace foreplan {

namespace {

FlopsPerSecond product_rate(Op const& op, Operands const& operands, HardwareProfile const& profile) {
  bool const single = operands.reads[0]->dtype == DType::fp32;
  FlopsPerSecond const peak = single ? profile.chip.fp32_peak : profile.chip.bf16_peak;
  return peak * (kernel_class(op.kind) == KernelClass::attention ? profile.efficiency.attention : profile.efficiency.gemm);
}

} // namespace

Demand kernel_demand(Op const& op, Operands const& operands, HardwareProfile const& profile, double device_speed) {
  Demand demand;
  if (kernel_class(op.kind) == KernelClass::none) {
    demand.device = ComputeDemand{};
    return demand;
  }
  Amount const amount = amount_of(op, operands);
  Seconds busy = amount.bytes / (profile.chip.memory_bandwidth * profile.efficiency.memory_bound);
  if (amount.flops > Flops(0))
    busy = std::max(busy, amount.flops / product_rate(op, operands, profile));
  Seconds const alone = (busy + profile.kernel_fixed) / device_speed;
  demand.issue = demand.lead = profile.issue;
  demand.device = ComputeDemand{alone};
  demand.memory_bandwidth_share = amount.bytes / alone / profile.chip.memory_bandwidth;
  return demand;
}

} // namespace foreplan

#include "timing/kernels/machine.hpp"

#include <algorithm>

namespace foreplan {

KernelMachine kernel_machine(Chip const& chip, KernelParameters const& parameters) {
  KernelValues const& values = parameters.values;
  KernelMachine machine;
  machine.multiprocessors = chip.multiprocessors;
  machine.clock = parameters.clock_under_load;
  machine.memory_rate = chip.memory_bandwidth.value() * values[kernel::memory_rate];
  machine.peak = chip.bf16_peak.value();
  for (std::size_t i = 0; i < machine.rate.size(); ++i) {
    auto const format = static_cast<NumberFormat>(i);
    double const peak = peak_rate(chip, format);
    machine.rate[i] = peak * values[efficiency_of(format)];
    machine.epilogue[i] = values[kernel::epilogue] * peak / machine.peak;
  }
  if (std::ranges::any_of(parameters.correction.tables, [](auto const& table) { return !table.empty(); }))
    machine.correction = &parameters.correction;
  machine.tile_load = values[kernel::tile_load];
  machine.fixed = values[kernel::fixed];
  machine.quantize_fixed = values[kernel::quantize_fixed];
  machine.attention_matrix = values[kernel::attention_matrix];
  // Chips with products of 8-bit floats have instructions that FlashAttention-2 does not use. H100, causal, 128 channels:
  // 0.36 of the peak gives 319 to 335 TFLOP/s forward and 294 to 328 forward and backward at 4096 to 16384 tokens within
  // 7 %, where the library's own kernels reach 0.67 (Dao-AILab/flash-attention, flash2_h100_fwd_bwd and flash3_fp16_fwd).
  constexpr double portable_rate = 0.54;
  machine.ampere_rate = chip.fp8_peak.value() > 0 ? portable_rate : 1;
  machine.portable_attention = machine.attention_matrix * machine.ampere_rate;
  machine.attention_softmax = values[kernel::attention_softmax];
  machine.attention_overhead = values[kernel::attention_overhead];
  return machine;
}

} // namespace foreplan

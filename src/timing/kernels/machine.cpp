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
  machine.attention_softmax = values[kernel::attention_softmax];
  machine.attention_overhead = values[kernel::attention_overhead];
  return machine;
}

} // namespace foreplan

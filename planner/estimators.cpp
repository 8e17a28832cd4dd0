#include "planner/estimators.hpp"

#include <algorithm>

namespace foreplan {

EstimatedModel estimated(Model const& model) {
  double const hidden = static_cast<double>(model.hidden);
  double const widest = static_cast<double>(std::max({model.vocabulary, model.ffn, model.heads * model.head_size}));
  return {static_cast<double>(parameter_count(model)), hidden * widest};
}

std::vector<Estimate> deepspeed_estimates(EstimatedModel const& model, int devices, int nodes, Plan const& plan) {
  constexpr double buffer_factor = 1.5; // "additional_buffer_factor"
  double const p = model.parameters, n = devices, largest = 4 * model.largest_module;
  auto with = [&](int stage, MemoryTier optimizer, MemoryTier parameters) {
    Plan changed = plan;
    changed.tp = changed.pp = changed.cp = changed.chunks = 1;
    changed.schedule = Schedule::one_f_one_b;
    changed.sequence_parallel = false;
    changed.dp = devices;
    changed.zero_stage = stage;
    changed.offload = {.optimizer = optimizer, .parameters = parameters};
    return changed;
  };
  constexpr MemoryTier device = MemoryTier::device, host = MemoryTier::host;
  auto copies = [&](double gpus) { return Bytes(p * std::max(4 * gpus, 16.0) * buffer_factor); };
  auto of_node = [&](double bytes_of_parameter) { return Bytes(p * bytes_of_parameter / nodes * buffer_factor); };
  return {
      {"zero 2", with(2, device, device), Bytes(2 * p + 18 * p / n), Bytes(0), Bytes(4 * p + 16 * p / n), Bytes(0)},
      {"zero 2, optimizer on the host", with(2, host, device), Bytes(2 * p), copies(n), Bytes(0), copies(n / nodes)},
      {"zero 3", with(3, device, device), Bytes(largest + 18 * p / n), Bytes(0), Bytes(0), Bytes(0)},
      {"zero 3, optimizer on the host", with(3, host, device), Bytes(largest + 2 * p / n), of_node(16), Bytes(0),
       Bytes(0)},
      {"zero 3, optimizer and parameters on the host", with(3, host, host), Bytes(largest), of_node(18), Bytes(0),
       Bytes(0)},
  };
}

} // namespace foreplan

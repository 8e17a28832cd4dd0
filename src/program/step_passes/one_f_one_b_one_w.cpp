#include "program/step_passes/step_passes.hpp"

#include <algorithm>

namespace foreplan {

std::vector<Work> one_f_one_b_one_w(Plan const& plan, std::int64_t forwards, std::int64_t lag) {
  std::int64_t const m = plan.micro_batches();
  std::int64_t const warm_up = std::min(forwards - 1, m);
  std::vector<Work> order;
  auto add = [&](SlotKind kind, std::int64_t j) { order.push_back({kind, Chunk(0), MicroBatch(j)}); };
  for (std::int64_t j = 0; j < warm_up; ++j)
    add(SlotKind::forward, j);
  for (std::int64_t j = 0; j < m; ++j) {
    if (warm_up + j < m)
      add(SlotKind::forward, warm_up + j);
    add(SlotKind::backward, j);
    if (j >= lag)
      add(SlotKind::weight_gradient, j - lag);
  }
  for (std::int64_t j = std::max<std::int64_t>(m - lag, 0); j < m; ++j)
    add(SlotKind::weight_gradient, j);
  return order;
}

} // namespace foreplan

// 1F1B (PipeDream-Flush, arXiv 2006.09503): stage i runs pp - 1 - i forwards, then alternates one forward and one
// backward, so it never holds more than pp - i micro-batches.
#include "program/step_passes/step_passes.hpp"

#include <algorithm>

namespace foreplan {

std::vector<Work> one_f_one_b(Plan const& plan, Stage stage) {
  std::int64_t const m = plan.micro_batches();
  std::int64_t const warm_up = std::min<std::int64_t>(plan.pp - 1 - stage.value(), m);
  std::vector<Work> order;
  auto forward = [&](std::int64_t j) { order.push_back({SlotKind::forward, Chunk(0), MicroBatch(j)}); };
  auto backward = [&](std::int64_t j) { order.push_back({SlotKind::backward, Chunk(0), MicroBatch(j)}); };
  for (std::int64_t j = 0; j < warm_up; ++j)
    forward(j);
  for (std::int64_t j = warm_up; j < m; ++j) {
    forward(j);
    backward(j - warm_up);
  }
  for (std::int64_t j = m - warm_up; j < m; ++j)
    backward(j);
  return order;
}

} // namespace foreplan

// Interleaved 1F1B (Megatron-LM, arXiv 2104.04473, section 2.2): every stage holds v chunks of the model; micro-batches go
// through them in groups (Megatron-Core's microbatch_group_size_per_vp_stage, pp if not said otherwise).
#include "program/step_passes/step_passes.hpp"

#include <algorithm>

namespace foreplan {

namespace {

// The forwards of every stage, in order; its backwards are these with chunks counted from the last.
std::vector<Work> forwards(Plan const& plan, std::int64_t group_size) {
  std::int64_t const m = plan.micro_batches();
  std::vector<Work> order;
  for (std::int64_t first = 0; first < m; first += group_size)
    for (int chunk = 0; chunk < plan.chunks; ++chunk)
      for (std::int64_t j = first; j < std::min(first + group_size, m); ++j)
        order.push_back({SlotKind::forward, Chunk(chunk), MicroBatch(j)});
  return order;
}

} // namespace

std::vector<Work> interleaved(Plan const& plan, Stage stage) {
  std::int64_t const group_size = plan.micro_batch_group > 0 ? plan.micro_batch_group : plan.pp;
  std::vector<Work> const forward = forwards(plan, group_size);
  auto const backward = [&](std::size_t k) {
    return Work{SlotKind::backward, Chunk(plan.chunks - 1 - forward[k].chunk.value()), forward[k].micro_batch};
  };
  std::size_t const warm_up = std::min(
      forward.size(),
      static_cast<std::size_t>(std::int64_t{2} * (plan.pp - 1 - stage.value()) + (plan.chunks - 1) * group_size));
  std::vector<Work> order(forward.begin(), forward.begin() + static_cast<std::ptrdiff_t>(warm_up));
  for (std::size_t k = warm_up; k < forward.size(); ++k) {
    order.push_back(forward[k]);
    order.push_back(backward(k - warm_up));
  }
  for (std::size_t k = forward.size() - warm_up; k < forward.size(); ++k)
    order.push_back(backward(k));
  return order;
}

} // namespace foreplan

// Interleaved 1F1B (Megatron-LM, arXiv 2104.04473, section 2.2): every stage holds v chunks of the model; micro-batches go
// through them in groups of pp. Needs a number of micro-batches that pp divides.
#include "program/step_passes/step_passes.hpp"

#include <algorithm>

namespace foreplan {

namespace {

// The k-th forward (or, with chunks counted from the last, backward) of every stage.
Work virtual_micro_batch(Plan const& plan, SlotKind kind, std::int64_t k) {
  std::int64_t const group_size = static_cast<std::int64_t>(plan.pp) * plan.chunks;
  std::int64_t const group = k / group_size;
  std::int64_t const chunk = k % group_size / plan.pp;
  std::int64_t const j = group * plan.pp + k % plan.pp;
  return {kind, Chunk(kind == SlotKind::forward ? chunk : plan.chunks - 1 - chunk), MicroBatch(j)};
}

} // namespace

std::vector<Work> interleaved(Plan const& plan, Stage stage) {
  std::int64_t const total = plan.micro_batches() * plan.chunks;
  std::int64_t const warm_up = std::min<std::int64_t>(total,
                                                      2 * static_cast<std::int64_t>(plan.pp - 1 - stage.value()) +
                                                          static_cast<std::int64_t>(plan.chunks - 1) * plan.pp);
  std::vector<Work> order;
  for (std::int64_t k = 0; k < warm_up; ++k)
    order.push_back(virtual_micro_batch(plan, SlotKind::forward, k));
  for (std::int64_t k = warm_up; k < total; ++k) {
    order.push_back(virtual_micro_batch(plan, SlotKind::forward, k));
    order.push_back(virtual_micro_batch(plan, SlotKind::backward, k - warm_up));
  }
  for (std::int64_t k = total - warm_up; k < total; ++k)
    order.push_back(virtual_micro_batch(plan, SlotKind::backward, k));
  return order;
}

} // namespace foreplan

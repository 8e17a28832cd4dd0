// GPipe (arXiv 1811.06965): all forwards, then all backwards.
#include "program/step_passes/step_passes.hpp"

namespace foreplan {

std::vector<Work> gpipe(Plan const& plan, Stage) {
  std::vector<Work> order;
  for (SlotKind kind : {SlotKind::forward, SlotKind::backward})
    for (std::int64_t j = 0; j < plan.micro_batches(); ++j)
      order.push_back({kind, Chunk(0), MicroBatch(j)});
  return order;
}

} // namespace foreplan

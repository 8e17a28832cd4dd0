// V-Min (Pipeline Parallelism with Controllable Memory, arXiv 2405.15362, section 3): a third of the activations of 1F1B's
// first stage on every stage, (p + 4) / 3 micro-batches. A micro-batch goes down and back without a pause.
#include "program/step_passes/step_passes.hpp"

namespace foreplan {

VPattern v_min(Plan const& plan) {
  VPattern pattern;
  std::int64_t const p = plan.pp;
  std::int64_t const gap = p % 3 == 0 ? 2 : 0; // before the backward: passes of a stage must not meet
  for (std::int64_t i = 0; i < p; ++i)
    pattern.blocks.push_back({{i, 2 * p - 1 - i}, {4 * p - 1 + gap - i, 2 * p + gap + i}});
  pattern.most_in_flight = 2 * ((p + 4) / 3);
  return pattern;
}

} // namespace foreplan

// V-Half (Pipeline Parallelism with Controllable Memory, arXiv 2405.15362, section 3): about half the activations of 1F1B's
// first stage on every stage, (p + 2) / 2 micro-batches. Two units a stage on the way down, one on the way back.
#include "program/step_passes/step_passes.hpp"

namespace foreplan {

VPattern v_half(Plan const& plan) {
  VPattern pattern;
  std::int64_t const p = plan.pp;
  std::int64_t const gap = p % 2 == 0 ? 3 : 0; // before the backward: passes of a stage must not meet
  for (std::int64_t i = 0; i < p; ++i)
    pattern.blocks.push_back({{2 * i, 3 * p - 2 - i}, {6 * p - 2 + gap - i, 3 * p - 1 + gap + 2 * i}});
  pattern.most_in_flight = 2 * ((p + 2) / 2);
  return pattern;
}

} // namespace foreplan

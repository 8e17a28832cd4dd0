// ZB-V (Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 4): the activations of 1F1B's first stage on every stage,
// p micro-batches or 2 p chunks. In its block the way down takes 4 units a stage and the way back 2, forward as well as
// backward: a stage's four passes then stand at 4 i modulo 6 plus what they have on stage 0, and never meet.
#include "program/step_passes/step_passes.hpp"

namespace foreplan {

VPattern zb_v(Plan const& plan) {
  VPattern pattern;
  std::int64_t const p = plan.pp;
  for (std::int64_t i = 0; i < p; ++i) {
    std::int64_t const down = 4 * i, back = 2 * (p - 1 - i);
    std::int64_t const turn = 4 * (p - 1) + 1;        // F1 begins on the last stage
    std::int64_t const loss = turn + 2 * (p - 1) + 1; // B1 begins on the first
    std::int64_t const second_turn = loss + turn;
    pattern.blocks.push_back({{down, turn + back}, {second_turn + back, loss + down}});
  }
  pattern.most_in_flight = 2 * p;
  return pattern;
}

} // namespace foreplan

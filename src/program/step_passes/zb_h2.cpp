// ZB-H2 (Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 2.2): 2 (p - i) - 1 forwards before the first backward
// of stage i, and W put off by 2 i micro-batches: 2 p - 1 micro-batches in flight on every stage. When F, B and W take
// equally long no stage pauses between its first and its last pass; as stage i begins i F late, a step that ends with a
// barrier (the gradients' norm) still takes (p - 1) F longer than the work.
#include "program/step_passes/step_passes.hpp"

namespace foreplan {

std::vector<Work> zb_h2(Plan const& plan, Stage stage) {
  return one_f_one_b_one_w(plan, 2 * (plan.pp - stage.value()) - 1, 2LL * stage.value());
}

} // namespace foreplan

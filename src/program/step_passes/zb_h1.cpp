// ZB-H1 (Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 2.1): 1F1B whose weight gradients fill the cool-down.
// Stage i puts W off by i micro-batches, so that every stage holds p of them, as 1F1B's first stage does. The bubble is
// (p - 1) (F + B - W).
#include "program/step_passes/step_passes.hpp"

namespace foreplan {

std::vector<Work> zb_h1(Plan const& plan, Stage stage) {
  return one_f_one_b_one_w(plan, plan.pp - stage.value(), stage.value());
}

} // namespace foreplan

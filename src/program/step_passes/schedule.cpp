#include "program/step_passes/step_passes.hpp"

namespace foreplan {

namespace {

std::vector<std::vector<Work>> by_stage(Plan const& plan, std::vector<Work> (*order)(Plan const&, Stage)) {
  std::vector<std::vector<Work>> orders;
  for (int s = 0; s < plan.pp; ++s)
    orders.push_back(order(plan, Stage(s)));
  return orders;
}

} // namespace

std::vector<std::vector<Work>> schedule(Plan const& plan) {
  switch (plan.schedule) {
    case Schedule::gpipe: return by_stage(plan, gpipe);
    case Schedule::one_f_one_b: return by_stage(plan, one_f_one_b);
    case Schedule::interleaved: return by_stage(plan, interleaved);
    case Schedule::zb_h1: return by_stage(plan, zb_h1);
    case Schedule::zb_h2: return by_stage(plan, zb_h2);
    case Schedule::zb_v: return schedule_v(plan, zb_v(plan));
    case Schedule::v_half: return schedule_v(plan, v_half(plan));
    case Schedule::v_min: return shorter_v(plan, v_min(plan));
    case Schedule::dualpipe_v: return by_stage(plan, dualpipe_v);
  }
  return {};
}

} // namespace foreplan

#include "planner/fewest_recomputed.hpp"

#include "plan/plan_checker.hpp"
#include "planner/simulate.hpp"

namespace foreplan {

std::optional<PartlyRecomputed> fewest_recomputed(Model const& model, Plan plan, Bytes all, Bytes usable,
                                                  double headroom) {
  plan.recompute = Recompute::full;
  if (fit_of(all, usable, headroom) != Fit::fits)
    return {};
  std::optional<PartlyRecomputed> fewest;
  int least = 1, most = model.layers;
  while (least <= most) {
    plan.recompute_layers = (least + most) / 2;
    if (!check(model, plan).empty()) { // more than a chunk has
      most = plan.recompute_layers - 1;
      continue;
    }
    Bytes const peak = peak_memory(model, plan);
    if (fit_of(peak, usable, headroom) == Fit::fits) {
      most = plan.recompute_layers - 1;
      fewest = {plan, peak};
    } else {
      least = plan.recompute_layers + 1;
    }
  }
  return fewest && fewest->peak > all ? fewest : std::nullopt; // else it is all of them
}

} // namespace foreplan

#include "planner/balance.hpp"

#include <algorithm>

namespace foreplan {

namespace {

struct Part {
  int stage = 0;
  int blocks = 0;
};

// What one more block of a part takes: the first `recompute_layers` of a chunk are recomputed.
Seconds next_block(PlanLayers const& layers, Plan const& plan, Part const& part) {
  bool const is_recomputed = plan.recompute != Recompute::none &&
                             (plan.recompute_layers < 0 || part.blocks < plan.recompute_layers);
  LayerTimes const& block = is_recomputed ? layers.recomputed_block : layers.block;
  return block.forward + block.backward;
}

} // namespace

std::vector<int> balanced_layout(Model const& model, Plan const& plan, LowerBound& times) {
  PlanLayers const& layers = times.layers_of_plan(plan);
  auto const count = static_cast<std::size_t>(plan.pp) * static_cast<std::size_t>(plan.chunks);
  std::vector<Part> parts(count);
  for (std::size_t p = 0; p < count; ++p)
    parts[p].stage = stage_of_part(plan, static_cast<int>(p)).value();
  std::vector<Seconds> busy(static_cast<std::size_t>(plan.pp));
  auto busy_of = [&](Part const& part) -> Seconds& { return busy[static_cast<std::size_t>(part.stage)]; };
  busy_of(parts.front()) += layers.embedding.forward + layers.embedding.backward;
  busy_of(parts.back()) += layers.head.forward + layers.head.backward;
  auto give_block = [&](Part& part) {
    busy_of(part) += next_block(layers, plan, part);
    ++part.blocks;
  };
  for (std::size_t p = 1; p + 1 < count; ++p) // no part without a layer; the ends have theirs
    give_block(parts[p]);
  int const placed = std::max(0, static_cast<int>(count) - 2);
  for (int block = placed; block < model.layers; ++block)
    give_block(*std::min_element(parts.rbegin(), parts.rend(), [&](Part const& a, Part const& b) {
      return busy_of(a) != busy_of(b) ? busy_of(a) < busy_of(b) : a.blocks < b.blocks;
    }));
  std::vector<int> layout;
  for (Part const& part : parts)
    layout.push_back(part.blocks);
  return layout;
}

} // namespace foreplan

#include "plan/process_groups.hpp"

namespace foreplan {

std::string to_string(AxisSet axes) {
  std::string text;
  for (Axis axis : {Axis::tp, Axis::dp, Axis::pp}) {
    if (!axes.contains(axis))
      continue;
    if (!text.empty())
      text += '+';
    text += axis == Axis::tp ? "tp" : axis == Axis::dp ? "dp" : "pp";
  }
  return text;
}

int degree(Plan const& plan, Axis axis) { return axis == Axis::tp ? plan.tp : axis == Axis::dp ? plan.dp : plan.pp; }

int group_size(Plan const& plan, AxisSet axes) {
  int size = 1;
  for (Axis axis : {Axis::tp, Axis::dp, Axis::pp})
    if (axes.contains(axis))
      size *= degree(plan, axis);
  return size;
}

Coordinate coordinate_of(Plan const& plan, Rank rank) {
  int const r = rank.value();
  return {r % plan.tp, r / plan.tp % plan.dp, r / (plan.tp * plan.dp)};
}

Rank rank_at(Plan const& plan, Coordinate coordinate) {
  return Rank(coordinate.tp + plan.tp * (coordinate.dp + plan.dp * coordinate.pp));
}

std::vector<Rank> group_of(Plan const& plan, Rank rank, AxisSet axes) {
  Coordinate const self = coordinate_of(plan, rank);
  auto range = [&](Axis axis) {
    return axes.contains(axis) ? std::pair{0, degree(plan, axis)} : std::pair{self.along(axis), self.along(axis) + 1};
  };
  auto const [tp_first, tp_last] = range(Axis::tp);
  auto const [dp_first, dp_last] = range(Axis::dp);
  auto const [pp_first, pp_last] = range(Axis::pp);
  std::vector<Rank> members;
  for (int pp = pp_first; pp < pp_last; ++pp)
    for (int dp = dp_first; dp < dp_last; ++dp)
      for (int tp = tp_first; tp < tp_last; ++tp)
        members.push_back(rank_at(plan, {tp, dp, pp}));
  return members;
}

namespace {

// Blocks in each of `parts` consecutive chunks.
int blocks_in(int blocks, int parts, int part) {
  if (blocks % parts == 0)
    return blocks / parts;
  if ((blocks + 2) % parts == 0)
    return (blocks + 2) / parts - (part == 0 ? 1 : 0) - (part == parts - 1 ? 1 : 0);
  int const remainder = blocks % parts;
  return blocks / parts + (part >= 1 && part <= remainder ? 1 : 0);
}

// Blocks before the given part: a part closes with the first block at which the cost reaches its share (nanotron,
// models/base.py: build_model; the cost of models/llama.py: get_block_compute_costs, which takes kv_heads for heads).
int blocks_before(Model const& model, int parts, int part) {
  double const block = static_cast<double>(model.hidden) *
                       static_cast<double>(4 * model.heads * model.head_size +
                                           (is_gated(model.activation) ? 3 : 2) * model.ffn);
  double const head = static_cast<double>(model.vocabulary * model.hidden);
  double const share = (block * model.layers + head) / parts;
  int blocks = 0;
  for (int closed = 0; closed < part && blocks < model.layers; ++blocks)
    if ((blocks + 1) * block >= share * (closed + 1))
      ++closed;
  return blocks;
}

} // namespace

LayerRange layers_of(Model const& model, Plan const& plan, Stage stage, Chunk chunk) {
  int const parts = plan.pp * plan.chunks;
  int const part = chunk.value() * plan.pp + stage.value();
  if (plan.execution.layer_placement == LayerPlacement::cost_share) {
    int const begin = part == 0 ? 0 : 1 + blocks_before(model, parts, part);
    return {begin, part == parts - 1 ? model.layers + 2 : 1 + blocks_before(model, parts, part + 1)};
  }
  int first = 1;
  for (int earlier = 0; earlier < part; ++earlier)
    first += blocks_in(model.layers, parts, earlier);
  int last = first + blocks_in(model.layers, parts, part);
  if (part == 0)
    first = 0;
  if (part == parts - 1)
    last = model.layers + 2;
  return {first, last};
}

} // namespace foreplan

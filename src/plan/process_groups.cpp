#include "plan/process_groups.hpp"

namespace foreplan {

std::string to_string(AxisSet axes) {
  constexpr std::array<char const*, axis_count> names{"tp", "cp", "dp", "replica", "pp"};
  std::string text;
  for (Axis axis : all_axes) {
    if (!axes.contains(axis))
      continue;
    if (!text.empty())
      text += '+';
    text += names[static_cast<std::size_t>(axis)];
  }
  return text;
}

int degree(Plan const& plan, Axis axis) {
  switch (axis) {
    case Axis::tp: return plan.tp;
    case Axis::cp: return plan.cp;
    case Axis::dp: return plan.dp / plan.replicas();
    case Axis::replica: return plan.replicas();
    case Axis::pp: return plan.pp;
  }
  return 1;
}

int group_size(Plan const& plan, AxisSet axes) {
  int size = 1;
  for (Axis axis : all_axes)
    if (axes.contains(axis))
      size *= degree(plan, axis);
  return size;
}

AxisSet nontrivial(Plan const& plan, AxisSet axes) {
  AxisSet result;
  for (Axis axis : all_axes)
    if (axes.contains(axis) && degree(plan, axis) > 1)
      result = result | axis;
  return result;
}

AxisSet data_group(Plan const& plan) {
  AxisSet const axes = nontrivial(plan, data_axes);
  return axes.empty() ? AxisSet(Axis::dp) : axes;
}

AxisSet shard_axes(Plan const& plan) {
  if (plan.zero_stage == 0)
    return {};
  return nontrivial(plan, plan.sharding.inner_group > 0 ? data_axes : AxisSet{Axis::cp, Axis::dp});
}

AxisSet inner_axes(Plan const& plan) {
  return plan.zero_stage >= 1 ? nontrivial(plan, {Axis::cp, Axis::dp}) : AxisSet{};
}

bool has_copies(Plan const& plan) { return plan.replicas() > 1 && !shard_axes(plan).contains(Axis::replica); }

bool reduces_every_micro_batch(Plan const& plan) {
  return plan.zero_stage >= 2 && !shard_axes(plan).empty() && !plan.sharding.reduce_once;
}

DType layer_gradient_dtype(Plan const& plan) {
  return reduces_every_micro_batch(plan) ? plan.parameter_dtype : plan.gradient_dtype;
}

int data_index(Plan const& plan, Coordinate const& coordinate) {
  return coordinate.replica * degree(plan, Axis::dp) + coordinate.dp;
}

Coordinate coordinate_of(Plan const& plan, Rank rank) {
  Coordinate result;
  int rest = rank.value();
  for (Axis axis : all_axes) {
    result[axis] = rest % degree(plan, axis);
    rest /= degree(plan, axis);
  }
  return result;
}

Rank rank_at(Plan const& plan, Coordinate coordinate) {
  int rank = 0, unit = 1;
  for (Axis axis : all_axes) {
    rank += unit * coordinate.along(axis);
    unit *= degree(plan, axis);
  }
  return Rank(rank);
}

std::vector<Rank> group_of(Plan const& plan, Rank rank, AxisSet axes) {
  Coordinate first = coordinate_of(plan, rank);
  for (Axis axis : all_axes)
    if (axes.contains(axis))
      first[axis] = 0;
  std::vector<Rank> members{rank_at(plan, first)};
  int unit = 1;                // between neighbours along the axis
  for (Axis axis : all_axes) { // each axis lays copies of what is there behind it: ascending ranks
    int const count = degree(plan, axis);
    std::size_t const size = members.size();
    for (int i = 1; axes.contains(axis) && i < count; ++i)
      for (std::size_t k = 0; k < size; ++k)
        members.push_back(Rank(members[k].value() + i * unit));
    unit *= count;
  }
  return members;
}

int part_of(Plan const& plan, Stage stage, Chunk chunk) {
  if (is_v_shaped(plan.schedule) && chunk == Chunk(1))
    return 2 * plan.pp - 1 - stage.value();
  return chunk.value() * plan.pp + stage.value();
}

Stage stage_of_part(Plan const& plan, int part) {
  if (is_v_shaped(plan.schedule) && part >= plan.pp)
    return Stage(2 * plan.pp - 1 - part);
  return Stage(part % plan.pp);
}

bool ends_share_stage(Plan const& plan) { return plan.pp == 1 || is_v_shaped(plan.schedule); }

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
  if (part == parts)
    return model.layers;
  int blocks = 0;
  for (int closed = 0; closed < part && blocks < model.layers; ++blocks)
    if ((blocks + 1) * block >= share * (closed + 1))
      ++closed;
  return blocks;
}

} // namespace

LayerRange layers_of(Model const& model, Plan const& plan, Stage stage, Chunk chunk) {
  int const parts = plan.pp * plan.chunks;
  int const part = part_of(plan, stage, chunk);
  bool const by_cost = plan.layout.empty() && plan.execution.layer_placement == LayerPlacement::cost_share;
  auto const blocks = [&](int of) {
    if (by_cost)
      return blocks_before(model, parts, of + 1) - blocks_before(model, parts, of);
    return plan.layout.empty() ? blocks_in(model.layers, parts, of) : plan.layout[static_cast<std::size_t>(of)];
  };
  int first = 1;
  for (int earlier = 0; earlier < part; ++earlier)
    first += blocks(earlier);
  int last = first + blocks(part);
  if (part == 0)
    first = 0;
  if (part == parts - 1)
    last = model.layers + 2;
  return {first, last};
}

} // namespace foreplan

#include "planner/bounds.hpp"

#include "engine/segment.hpp"
#include "program/compile.hpp"

#include <algorithm>

namespace foreplan {

namespace {

// The same layers on the fewest ranks that have them: one tensor-parallel group, one block, one micro-batch.
Plan smallest_with_same_layers(Plan plan) {
  plan.gradient_dtype = layer_gradient_dtype(plan);
  plan.zero_group = plan.micro_batch_group = 0;
  plan.sharding = {};
  plan.offload = {};
  plan.pp = plan.dp = plan.chunks = 1;
  plan.layout.clear();
  plan.schedule = Schedule::one_f_one_b;
  plan.zero_stage = 0;
  plan.offload = {}; // what is copied only makes it slower
  plan.recompute_layers = -1;
  plan.global_batch = plan.micro_batch;
  return plan;
}

LayerTimes operator+(LayerTimes a, LayerTimes b) { return {a.forward + b.forward, a.backward + b.backward}; }

// Of the layers' blocks in a folded program of one class, by kind.
struct Times {
  LayerTimes embedding, block, head;
};

// Of a piece of a pass, whose transfers other pieces hide, what it computes.
Seconds least_seconds(Folding const& folding, std::size_t block) {
  BlockOrigin const& origin = folding.blocks[block];
  Segment const segment = segment_of(folding.program, folding.program.blocks[block], origin);
  if (breaks_of(ops_of(*origin.layer_program, origin.kind)).none())
    return segment.device;
  return segment.compute[0] + segment.compute[1] + segment.compute[2] + segment.compute[3];
}

Times times_alone(Model model, Plan const& plan, Cluster const& cluster) {
  model.layers = 1;
  Program const program = compile(model, plan);
  Folding const folding = fold(program, cluster, {.interference = false});
  Times times;
  for (std::size_t b = 0; b < folding.blocks.size(); ++b) {
    BlockOrigin const& origin = folding.blocks[b];
    if (origin.layer_program == nullptr)
      continue;
    Seconds const device = least_seconds(folding, b);
    LayerKind const kind = origin.layer_program->kind;
    LayerTimes& layer = kind == LayerKind::embedding ? times.embedding
                        : kind == LayerKind::head    ? times.head
                                                     : times.block;
    (origin.kind == SlotKind::forward ? layer.forward : layer.backward) += device;
  }
  return times;
}

} // namespace

PlanLayers const& LowerBound::layers_of_plan(Plan const& plan) {
  Plan const small = smallest_with_same_layers(plan);
  auto const known = std::find_if(known_.begin(), known_.end(), [&](auto const& pair) { return pair.first == small; });
  if (known != known_.end())
    return known->second;
  Cluster cluster = cluster_;
  cluster.exceptions.clear(); // slow devices only make it slower
  Times const recomputed = times_alone(model_, small, cluster);
  Plan without = small;
  without.recompute = Recompute::none;
  Times const plain = small.recompute == Recompute::none ? recomputed : times_alone(model_, without, cluster);
  known_.emplace_back(small, PlanLayers{plain.embedding, plain.block, recomputed.block, plain.head});
  return known_.back().second;
}

LayerTimes LowerBound::times_of(PlanLayers const& layers, Plan const& plan, LayerRange chunk) const {
  LayerTimes sum{};
  if (chunk.first == 0)
    sum = sum + layers.embedding;
  if (chunk.last == model_.layers + 2)
    sum = sum + layers.head;
  int const blocks = std::min(chunk.last, model_.layers + 1) - std::max(chunk.first, 1);
  int const recomputed = plan.recompute == Recompute::none ? 0
                         : plan.recompute_layers < 0       ? blocks
                                                           : std::min(blocks, plan.recompute_layers);
  for (int block = 0; block < blocks; ++block)
    sum = sum + (block < recomputed ? layers.recomputed_block : layers.block);
  return sum;
}

Seconds LowerBound::operator()(Plan const& plan) {
  PlanLayers const& layers = layers_of_plan(plan);
  auto const m = static_cast<double>(plan.micro_batches());
  Seconds bound, in_front; // first chunks of the stages in front: their first forward and their last backward
  for (int s = 0; s < plan.pp; ++s) {
    LayerTimes busy{};
    for (int c = 0; c < plan.chunks; ++c)
      busy = busy + times_of(layers, plan, layers_of(model_, plan, Stage(s), Chunk(c)));
    bound = std::max(bound, in_front + (busy.forward + busy.backward) * m);
    LayerTimes const first = times_of(layers, plan, layers_of(model_, plan, Stage(s), Chunk(0)));
    in_front += splits_backward(plan.schedule) ? first.forward : first.forward + first.backward; // W may be left to do
  }
  return bound;
}

} // namespace foreplan

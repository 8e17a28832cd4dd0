#include "program/step_passes/step_passes.hpp"

#include <algorithm>

namespace foreplan {

Op step_op(StageProgram& stage, OpKind kind, std::string name, Stream stream, std::vector<TensorId> reads,
           std::vector<TensorId> writes) {
  Op op;
  op.id = OpId(stage.next_op++);
  op.kind = kind;
  op.name = std::move(name);
  op.part = Part::step;
  op.stream = stream;
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  return op;
}

TensorId add_tensor(StageProgram& stage, Tensor tensor) {
  stage.tensors.push_back(std::move(tensor));
  return TensorId(static_cast<std::int64_t>(stage.tensors.size()) - 1);
}

BufferId add_buffer(StageProgram& stage, Buffer buffer) {
  stage.buffers.push_back(std::move(buffer));
  return BufferId(static_cast<std::int64_t>(stage.buffers.size()) - 1);
}

Tensor boundary_tensor(Program const& program, BufferRef buffer) {
  Plan const& plan = program.plan;
  std::int64_t const shards = plan.sequence_parallel ? plan.tp : 1;
  Tensor tensor{.name = buffer.scope == BufferRef::Scope::activation ? "activations" : "activation gradients",
                .buffer = buffer,
                .shape = {plan.tokens() / shards, program.model.hidden},
                .dtype = plan.parameter_dtype};
  tensor.placement = placed({}, data_axes, sharded(0));
  if (shards > 1)
    tensor.placement[Axis::tp] = sharded(0);
  return tensor;
}

bool is_recomputed(Program const& program, LayerRange chunk, int layer) {
  Plan const& plan = program.plan;
  bool const is_block = layer >= 1 && layer <= program.model.layers;
  return is_block && plan.recompute != Recompute::none &&
         (plan.recompute_layers < 0 || layer - std::max(chunk.first, 1) < plan.recompute_layers);
}

Tensor flat_tensor(StageProgram const& stage, BufferId buffer, Placement placement) {
  Buffer const& storage = stage.buffers[buffer.index()];
  return {.name = storage.name,
          .buffer = {BufferRef::Scope::stage, buffer.value()},
          .shape = {storage.elements},
          .dtype = storage.dtype,
          .placement = placement,
          .category = storage.category};
}

Tensor flat_shard(StageProgram const& stage, Plan const& plan, BufferId buffer, Placement placement, AxisSet axes) {
  Tensor shard = flat_tensor(stage, buffer, placed(placement, axes, sharded(0)));
  shard.name += " (own shard)";
  shard.shape = {shard.shape[0] / group_size(plan, axes)};
  shard.stride = shard_strides(plan, axes, shard.shape[0]);
  return shard;
}

Tensor own_part(StageProgram const& stage, Plan const& plan, Bucket const& bucket, BufferId buffer,
                Placement placement) {
  placement = placed(placement, data_axes, replicated);
  if (stage.buffers[buffer.index()].elements < bucket.elements) // a buffer of the shard alone
    return flat_tensor(stage, buffer, placed(placement, bucket.sharded_over, sharded(0)));
  return bucket.sharded_over.empty() ? flat_tensor(stage, buffer, placement)
                                     : flat_shard(stage, plan, buffer, placement, bucket.sharded_over);
}

} // namespace foreplan

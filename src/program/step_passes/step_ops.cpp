#include "program/step_passes/step_passes.hpp"

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

Tensor flat_tensor(StageProgram const& stage, BufferId buffer, Placement placement) {
  Buffer const& storage = stage.buffers[buffer.index()];
  return {.name = storage.name,
          .buffer = {BufferRef::Scope::stage, buffer.value()},
          .shape = {storage.elements},
          .dtype = storage.dtype,
          .placement = placement,
          .category = storage.category};
}

Tensor flat_shard(StageProgram const& stage, BufferId buffer, Placement placement, int dp) {
  Tensor shard = flat_tensor(stage, buffer, placement);
  shard.name += " (own shard)";
  shard.shape = {shard.shape[0] / dp};
  shard.dp_stride = shard.shape[0];
  return shard;
}

} // namespace foreplan

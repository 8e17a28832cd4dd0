#include "program/step_passes/step_passes.hpp"

#include <fmt/format.h>

namespace foreplan {

BufferId gradients_on_wire(Plan const& plan, StageProgram& stage, std::size_t k, std::vector<Element>& result) {
  Bucket const& bucket = stage.buckets[k];
  if (plan.reduction_dtype == layer_gradient_dtype(plan))
    return bucket.gradients;
  BufferId const wire = add_buffer(stage, {fmt::format("bucket {} on the wire", k), Category::communication,
                                           plan.reduction_dtype, bucket.elements, false});
  TensorId const from = add_tensor(stage, flat_tensor(stage, bucket.gradients, bucket.gradient_placement));
  TensorId const to = add_tensor(stage, flat_tensor(stage, wire, bucket.gradient_placement));
  result.emplace_back(step_op(stage, OpKind::cast, "gradients to wire", Stream::compute, {from}, {to}));
  return wire;
}

TensorId reduce_gradients(Plan const& plan, StageProgram& stage, std::size_t k, BufferId wire, bool over_replicas,
                          std::vector<Element>& result) {
  Bucket const& bucket = stage.buckets[k];
  auto reduce = [&](OpKind kind, std::string name, Stream stream, AxisSet axes, TensorId from, Tensor to) {
    TensorId const sum = add_tensor(stage, std::move(to));
    Op op = step_op(stage, kind, std::move(name), stream, {from}, {sum});
    op.group = {axes, false};
    result.emplace_back(std::move(op));
    return sum;
  };
  TensorId const whole = add_tensor(stage, flat_tensor(stage, wire, bucket.gradient_placement));
  Tensor const own = own_part(stage, plan, bucket, wire, bucket.gradient_placement);
  if (bucket.sharded_over.empty())
    return reduce(OpKind::all_reduce, fmt::format("reduce bucket {}", k), Stream::dp, data_group(plan), whole, own);
  TensorId const shard = reduce(OpKind::reduce_scatter, fmt::format("reduce bucket {}", k), Stream::dp,
                                bucket.sharded_over, whole,
                                flat_shard(stage, plan, wire, bucket.gradient_placement, bucket.sharded_over));
  if (!has_copies(plan) || !over_replicas)
    return shard;
  return reduce(OpKind::all_reduce, fmt::format("sum bucket {} over replicas", k), Stream::replica, Axis::replica,
                shard, own);
}

std::vector<Slot> cut_slot(StageProgram& stage, Slot slot, std::function<bool(int layer)> const& cut) {
  std::vector<Slot> parts;
  bool const forward = slot.kind == SlotKind::forward;
  int const count = slot.last - slot.first;
  for (int i = 0, begin = 0; i < count; ++i) {
    if (i + 1 < count && !cut(layer_of(slot, i)))
      continue;
    Slot part = slot;
    part.id = i + 1 < count ? OpId(stage.next_op++) : slot.id; // who waits for the slot waits for its end
    part.first = forward ? slot.first + begin : slot.last - 1 - i;
    part.last = forward ? slot.first + i + 1 : slot.last - begin;
    parts.push_back(part);
    begin = i + 1;
  }
  return parts;
}

} // namespace foreplan

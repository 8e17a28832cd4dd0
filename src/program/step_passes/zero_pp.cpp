// ZeRO++ (arXiv 2306.10209, sections 3 and 4; DeepSpeed, runtime/zero/partition_parameters.py and
// runtime/comm/coalesced_collectives.py): codes on the wire of gathered parameters (qwZ) and of reduced gradients
// (qgZ), and a secondary shard, kept by the forward, from which the backward gathers within the inner group (hpZ). The
// kernels run on the stream of the communication, as DeepSpeed's do.
#include "program/quantized_ops.hpp"
#include "program/step_passes/step_passes.hpp"

#include <fmt/format.h>

namespace foreplan {

namespace {

// On the data-parallel stream; what is added is a temporary, listed in `temporaries`.
QuantizedOps on_dp_stream(Plan const& plan, StageProgram& stage, int bits, std::string name,
                          std::vector<Element>& result, std::vector<BufferRef>& temporaries) {
  return {
      .plan = plan,
      .bits = bits,
      .name = std::move(name),
      .tensor = [&stage](TensorId id) -> Tensor const& { return stage[id]; },
      .add =
          [&stage, &temporaries](Tensor tensor, Category category) {
            BufferId const buffer = add_buffer(stage, {tensor.name, category, tensor.dtype, tensor.elements(), false});
            tensor.buffer = {BufferRef::Scope::stage, buffer.value()};
            tensor.category = category;
            temporaries.push_back(tensor.buffer);
            return add_tensor(stage, std::move(tensor));
          },
      .put =
          [&stage, &result](Op op) {
            op.id = OpId(stage.next_op++);
            op.part = Part::step;
            op.stream = Stream::dp;
            result.emplace_back(std::move(op));
          }};
}

} // namespace

std::vector<BufferRef> gather_parameters(Plan const& plan, StageProgram& stage, std::size_t k,
                                         std::vector<Element>& result) {
  Bucket const& bucket = stage.buckets[k];
  std::vector<BufferRef> temporaries;
  TensorId const own = add_tensor(stage, own_part(stage, plan, bucket, bucket.shard_parameters, bucket.placement));
  TensorId const whole = add_tensor(stage, flat_tensor(stage, bucket.parameters, bucket.placement));
  if (plan.sharding.weight_bits == 0) {
    Op op = step_op(stage, OpKind::all_gather, fmt::format("gather bucket {}", k), Stream::dp, {own}, {whole});
    op.group = {bucket.sharded_over, false};
    result.emplace_back(std::move(op));
    return temporaries;
  }
  QuantizedOps const ops = on_dp_stream(plan, stage, plan.sharding.weight_bits, fmt::format("bucket {}", k), result,
                                        temporaries);
  dequantize(ops, gather(ops, quantize(ops, own, 1), bucket.sharded_over), whole);
  return temporaries;
}

SecondaryShard add_secondary_shard(Plan const& plan, StageProgram& stage, std::size_t k) {
  Bucket const& bucket = stage.buckets[k];
  AxisSet const axes = inner_axes(plan);
  std::int64_t const elements = bucket.elements / group_size(plan, axes);
  Placement const placement = placed(bucket.placement, axes, sharded(0));
  auto persistent = [&](Tensor tensor) {
    BufferId const buffer = add_buffer(stage,
                                       {tensor.name, Category::parameters, tensor.dtype, tensor.elements(), true});
    tensor.buffer = {BufferRef::Scope::stage, buffer.value()};
    tensor.category = Category::parameters;
    return add_tensor(stage, std::move(tensor));
  };
  std::string const name = fmt::format("bucket {} secondary shard", k);
  if (int const bits = plan.sharding.weight_bits; bits > 0)
    return {persistent(codes_tensor(name + ", codes", elements, bits, placement)),
            persistent(scales_tensor(name + ", scales", elements, 1, placement))};
  Tensor shard;
  shard.name = name;
  shard.shape = {elements};
  shard.dtype = plan.parameter_dtype;
  shard.placement = placement;
  return {persistent(std::move(shard)), {}};
}

void keep_secondary_shard(Plan const& plan, StageProgram& stage, std::size_t k, SecondaryShard const& shard,
                          std::vector<Element>& result) {
  Bucket const& bucket = stage.buckets[k];
  TensorId const part = add_tensor(stage,
                                   flat_shard(stage, plan, bucket.parameters, bucket.placement, inner_axes(plan)));
  if (plan.sharding.weight_bits == 0) {
    result.emplace_back(step_op(stage, OpKind::cast, fmt::format("keep secondary shard of bucket {}", k), Stream::dp,
                                {part}, {shard.values}));
    return;
  }
  std::vector<BufferRef> none;
  quantize(on_dp_stream(plan, stage, plan.sharding.weight_bits, fmt::format("secondary shard of bucket {}", k), result,
                        none),
           part, {shard.values, shard.scales, 1});
}

std::vector<BufferRef> gather_secondary_shards(Plan const& plan, StageProgram& stage, std::size_t k,
                                               SecondaryShard const& shard, std::vector<Element>& result) {
  Bucket const& bucket = stage.buckets[k];
  std::vector<BufferRef> temporaries;
  TensorId const whole = add_tensor(stage, flat_tensor(stage, bucket.parameters, bucket.placement));
  if (plan.sharding.weight_bits == 0) {
    Op op = step_op(stage, OpKind::all_gather, fmt::format("gather secondary shards of bucket {}", k), Stream::dp,
                    {shard.values}, {whole});
    op.group = {inner_axes(plan), false};
    result.emplace_back(std::move(op));
    return temporaries;
  }
  QuantizedOps const ops = on_dp_stream(plan, stage, plan.sharding.weight_bits,
                                        fmt::format("secondary shards of bucket {}", k), result, temporaries);
  dequantize(ops, gather(ops, {shard.values, shard.scales, 1}, inner_axes(plan)), whole);
  return temporaries;
}

// After the first hop a rank holds the blocks of the ranks with its place in their inner groups, which the second hop
// brings home. A block's home is where the primary shard lies, in rank order: the inner index varies fastest. The wire
// wants the blocks of one inner index side by side, so the codes take them column by column (section 4.2's swizzle).
TensorId reduce_quantized_gradients(Plan const& plan, StageProgram& stage, std::size_t k, std::vector<Element>& result,
                                    std::vector<BufferRef>& temporaries) {
  Bucket const& bucket = stage.buckets[k];
  AxisSet const inner = inner_axes(plan);
  int const outer = group_size(plan, bucket.sharded_over) / group_size(plan, inner);
  TensorId const gradients = add_tensor(stage, flat_tensor(stage, bucket.gradients, bucket.gradient_placement));
  temporaries.push_back(stage[gradients].buffer);
  QuantizedOps const ops = on_dp_stream(plan, stage, plan.sharding.gradient_bits, fmt::format("bucket {} gradients", k),
                                        result, temporaries);
  Codes codes = exchange(ops, quantize(ops, gradients, outer * group_size(plan, inner), outer), inner);
  if (outer > 1)
    codes = exchange(ops, requantize(ops, codes, group_size(plan, inner)), Axis::replica);
  Tensor sum;
  sum.name = fmt::format("bucket {} reduced gradients", k);
  sum.shape = {bucket.shard_elements};
  sum.dtype = plan.reduction_dtype;
  sum.placement = own_part(stage, plan, bucket, bucket.shard_gradients, bucket.gradient_placement).placement;
  TensorId const shard = ops.add(std::move(sum), Category::communication);
  dequantize(ops, codes, shard);
  return shard;
}

} // namespace foreplan

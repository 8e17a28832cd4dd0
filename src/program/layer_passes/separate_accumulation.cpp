// Gradient accumulation as autograd does it (torch::autograd::AccumulateGrad; Megatron-LM without
// --gradient-accumulation-fusion): a weight gradient is a product with an output of its own, in the parameters' precision,
// which another kernel adds to the accumulated gradient.
#include "program/layer_passes/layer_passes.hpp"

#include <algorithm>

namespace foreplan {

namespace {

// A tensor like the gradient, in the precision that the product writes.
TensorId fresh_tensor(LayerProgram& layer, TensorId gradient, DType dtype) {
  Tensor fresh = layer[gradient];
  fresh.name += " (one micro-batch)";
  fresh.dtype = dtype;
  fresh.category = Category::gradients;
  fresh.buffer = {BufferRef::Scope::local, static_cast<std::int32_t>(layer.buffers.size())};
  layer.buffers.push_back({fresh.name, Category::gradients, dtype, fresh.elements(), false});
  layer.tensors.push_back(std::move(fresh));
  return TensorId(static_cast<std::int64_t>(layer.tensors.size()) - 1);
}

// Gradients of norms and biases, small: each is added by one more kernel, which costs the host alone.
int vectors_of(LayerProgram const& layer, Op const& op) {
  return static_cast<int>(std::count_if(op.writes.begin(), op.writes.end(), [&](TensorId id) {
    return layer[id].buffer.scope == BufferRef::Scope::gradient && layer[id].shape.size() == 1;
  }));
}

} // namespace

void separate_accumulation(LayerProgram& layer, Plan const& plan) {
  if (plan.execution.fused_accumulation)
    return;
  std::int32_t next_op = 0;
  for (auto const* ops : {&layer.forward, &layer.backward})
    for (Op const& op : *ops)
      next_op = std::max(next_op, op.id.value() + 1);
  std::vector<Op> result;
  for (Op& op : layer.backward) {
    op.launches += vectors_of(layer, op);
    result.push_back(std::move(op));
    if (result.back().kind != OpKind::linear_weight_gradient)
      continue;
    Op& product = result.back();
    TensorId const gradient = product.writes[0];
    TensorId const fresh = fresh_tensor(layer, gradient, plan.parameter_dtype);
    product.writes[0] = fresh;
    std::erase(product.reads, gradient);
    Op sum;
    sum.id = OpId(next_op++);
    sum.kind = OpKind::accumulate;
    sum.name = "accumulate " + product.name;
    sum.part = product.part;
    sum.reads = {fresh, gradient};
    sum.writes = {gradient};
    result.push_back(std::move(sum));
  }
  layer.backward = std::move(result);
}

} // namespace foreplan

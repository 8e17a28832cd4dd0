// Tensor parallelism (Megatron-LM, arXiv 1909.08053, section 3): the first linear of a pair is cut along its outputs, the
// second along its inputs; heads, MLP width and vocabulary are cut with them. Where the cut sums need a reduction follows
// from the placements (insert_collectives).
#include "program/layer_passes/layer_passes.hpp"

namespace foreplan {

void tensor_parallel(LayerProgram& layer, Plan const& plan) {
  if (plan.tp == 1)
    return;
  for (Tensor& tensor : layer.tensors) {
    if (tensor.split_dimension < 0)
      continue;
    tensor.shape[static_cast<std::size_t>(tensor.split_dimension)] /= plan.tp;
    tensor.placement[Axis::tp] = sharded(tensor.split_dimension);
    auto const index = static_cast<std::size_t>(tensor.buffer.index);
    if (tensor.buffer.scope == BufferRef::Scope::local) {
      layer.buffers[index].elements = tensor.elements();
    } else if (tensor.buffer.scope == BufferRef::Scope::parameter) {
      layer.parameters[index].shape = tensor.shape;
      layer.parameters[index].placement = tensor.placement;
    } else if (tensor.buffer.scope == BufferRef::Scope::gradient) {
      layer.parameters[index].gradient_placement = tensor.placement;
    }
  }
}

} // namespace foreplan

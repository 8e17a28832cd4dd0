// Sequence parallelism (Korthikanti et al., arXiv 2205.05198, section 4.2.2): outside the tensor-parallel regions every
// rank of the group keeps 1/tp of the tokens. The gathers and scatters at the borders follow from the placements.
#include "program/layer_passes/layer_passes.hpp"

namespace foreplan {

void sequence_parallel(LayerProgram& layer, Plan const& plan) {
  if (!plan.sequence_parallel || plan.tp == 1)
    return;
  for (Tensor& tensor : layer.tensors) {
    if (!tensor.residual)
      continue;
    tensor.shape[0] /= plan.tp;
    tensor.placement[Axis::tp] = sharded(0);
    if (tensor.buffer.scope == BufferRef::Scope::local)
      layer.buffers[static_cast<std::size_t>(tensor.buffer.index)].elements = tensor.elements();
  }
}

} // namespace foreplan

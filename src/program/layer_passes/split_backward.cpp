// The backward in two parts (Zero Bubble Pipeline Parallelism, arXiv 2401.10241): B, the gradients of the inputs, which the
// stage before waits for, and W, the gradients of the linears' weights, which nobody waits for until the optimizer. What W
// reads (the linears' inputs and output gradients) is kept until then. As in the authors' code, gathers that only serve
// weight gradients go with them, and norms and the embedding stay whole: theirs are by-products of B.
#include "program/layer_passes/layer_passes.hpp"

#include <algorithm>
#include <iterator>

namespace foreplan {

void split_backward(LayerProgram& layer, Plan const& plan) {
  if (!splits_backward(plan.schedule) || layer.kind == LayerKind::embedding)
    return;
  auto const first = std::stable_partition(layer.backward.begin(), layer.backward.end(),
                                           [](Op const& op) { return op.part != Part::weight_gradient; });
  std::move(first, layer.backward.end(), std::back_inserter(layer.weight_gradient));
  layer.backward.erase(first, layer.backward.end());
}

} // namespace foreplan

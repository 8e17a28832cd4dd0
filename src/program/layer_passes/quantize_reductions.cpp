// Codes on the wire of the sums over tp (as ZeRO++'s qgZ, arXiv 2306.10209, section 4, of gradients): terms are
// exchanged as codes and added up, each rank its part; where all ranks need the whole sum, it is quantized again and
// gathered.
#include "program/layer_passes/layer_passes.hpp"
#include "program/quantized_ops.hpp"

#include <algorithm>
#include <utility>

namespace foreplan {

namespace {

class Quantizer {
public:
  Quantizer(LayerProgram& layer, Plan const& plan) : layer_(layer), plan_(plan) {
    for (SlotKind kind : slot_kinds)
      for (Op const& op : ops_of(layer, kind))
        next_op_ = std::max(next_op_, op.id.value() + 1);
  }

  std::vector<Op> rewrite(std::vector<Op> ops) {
    std::vector<Op> result;
    for (Op& op : ops)
      if (is_sum_of_activations(op))
        reduce(op, result);
      else
        result.push_back(std::move(op));
    return result;
  }

private:
  // Not the sums of the loss, which are no residual tensors.
  bool is_sum_of_activations(Op const& op) const {
    return (op.kind == OpKind::all_reduce || op.kind == OpKind::reduce_scatter) && op.group.axes == Axis::tp &&
           layer_[op.reads[0]].placement[Axis::tp] == partial_sum && layer_[op.writes[0]].residual;
  }

  void reduce(Op const& sum, std::vector<Op>& result) {
    QuantizedOps const ops{.plan = plan_,
                           .bits = plan_.tp_bits,
                           .name = layer_[sum.writes[0]].name,
                           .tensor = [this](TensorId id) -> Tensor const& { return layer_[id]; },
                           .add = [this](Tensor tensor, Category category) { return add(std::move(tensor), category); },
                           .put =
                               [&](Op op) {
                                 op.id = OpId(next_op_++);
                                 op.part = sum.part;
                                 op.stream = sum.stream;
                                 result.push_back(std::move(op));
                               }};
    Codes const terms = exchange(ops, quantize(ops, sum.reads[0], plan_.tp), Axis::tp);
    Codes const part_of_sum = sum.kind == OpKind::reduce_scatter
                                  ? terms
                                  : gather(ops, requantize(ops, terms, plan_.tp), Axis::tp);
    dequantize(ops, part_of_sum, sum.writes[0]);
  }

  TensorId add(Tensor tensor, Category category) {
    tensor.category = category;
    tensor.buffer = {BufferRef::Scope::local, static_cast<std::int32_t>(layer_.buffers.size())};
    layer_.buffers.push_back({tensor.name, category, tensor.dtype, tensor.elements(), false});
    layer_.tensors.push_back(std::move(tensor));
    return TensorId(static_cast<std::int64_t>(layer_.tensors.size()) - 1);
  }

  LayerProgram& layer_;
  Plan const& plan_;
  std::int32_t next_op_ = 0;
};

} // namespace

void quantize_reductions(LayerProgram& layer, Plan const& plan) {
  if (plan.tp_bits == 0 || plan.tp == 1)
    return;
  Quantizer quantizer(layer, plan);
  layer.forward = quantizer.rewrite(std::move(layer.forward));
  layer.backward = quantizer.rewrite(std::move(layer.backward));
}

} // namespace foreplan

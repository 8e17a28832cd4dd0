// Domino (arXiv 2409.15241), row split: a micro-batch is cut into slices that need nothing of each other inside the layer,
// so that the reduction of one slice's partial sums runs under the work on the next slice. A slice is a view of the layer's
// tensors: weights, memory and result stay as they are. The order of issue is the paper's: the layer's ops are cut in front
// of those that read a reduced sum, and run piece by piece, in each piece slice by slice (backward: the last slice first).
// At the layer's end all slices meet.
#include "program/layer_passes/layer_passes.hpp"

#include "program/amounts.hpp"
#include "program/placement_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace foreplan {

namespace {

class Slicer {
public:
  Slicer(LayerProgram& layer, int slices) : layer_(layer), slices_(slices) {
    for (SlotKind kind : slot_kinds)
      for (Op const& op : ops_of(layer, kind))
        next_op_ = std::max(next_op_, op.id.value() + 1);
  }

  std::vector<Op> rewrite(std::vector<Op> const& ops, bool last_slice_first) {
    std::vector<Op> result;
    for (std::vector<Op> const& piece : pieces(ops))
      for (int i = 0; i < slices_; ++i)
        for (Op const& op : piece)
          result.push_back(slice_of(op, last_slice_first ? slices_ - 1 - i : i));
    return result;
  }

private:
  // Cut in front of every op that reads what a reduction will have to sum.
  std::vector<std::vector<Op>> pieces(std::vector<Op> const& ops) const {
    std::vector<std::vector<Op>> result(1);
    std::set<TensorId> reduced;
    for (Op const& op : ops) {
      if (std::any_of(op.reads.begin(), op.reads.end(), [&](TensorId id) { return reduced.contains(id); })) {
        result.emplace_back();
        reduced.clear();
      }
      auto const given = written_placements(op, operands_of(layer_, op), Axis::tp);
      for (std::size_t i = 0; given && i < op.writes.size(); ++i)
        if (layer_[op.writes[i]].buffer.scope != BufferRef::Scope::gradient &&
            (*given)[i] != layer_[op.writes[i]].placement[Axis::tp])
          reduced.insert(op.writes[i]);
      result.back().push_back(op);
    }
    return result;
  }

  Op slice_of(Op op, int slice) {
    op.id = OpId(next_op_++);
    op.name += fmt::format(", slice {}", slice);
    for (std::vector<TensorId>* ids : {&op.reads, &op.writes})
      for (TensorId& id : *ids)
        id = slice_of(id, slice);
    return op;
  }

  // Dimension 0 of what belongs to tokens counts them, or sequences.
  TensorId slice_of(TensorId id, int slice) {
    BufferRef::Scope const scope = layer_[id].buffer.scope;
    if (scope == BufferRef::Scope::parameter || scope == BufferRef::Scope::gradient)
      return id;
    auto const [found, is_new] = slices_of_.try_emplace({id, slice});
    if (!is_new)
      return found->second;
    Tensor view = layer_[id];
    view.name += fmt::format(", slice {}", slice);
    view.shape[0] /= slices_;
    view.offset += slice * view.elements();
    layer_.tensors.push_back(std::move(view));
    return found->second = TensorId(static_cast<std::int64_t>(layer_.tensors.size()) - 1);
  }

  LayerProgram& layer_;
  int slices_;
  std::int32_t next_op_ = 0;
  std::map<std::pair<TensorId, int>, TensorId> slices_of_;
};

} // namespace

void domino(LayerProgram& layer, Plan const& plan) {
  if (plan.domino_slices == 1 || layer.kind != LayerKind::block)
    return;
  Slicer slicer(layer, plan.domino_slices);
  layer.forward = slicer.rewrite(layer.forward, false);
  layer.backward = slicer.rewrite(layer.backward, true);
}

} // namespace foreplan

// Column split: a product of a block's second weights is computed in slices of its columns, so that the sum of one over
// the tensor-parallel group is taken while the next is computed; behind the last the columns are joined. The backward
// is whole.
//   Domino's column split (arXiv 2409.15241): Y1 = X A B1 is reduced while X A B2 runs
//   Megatron's overlap of a product with its reduce-scatter: Transformer Engine's method "pipeline" (module/base.py:
//   initialize_ub, fc2_fprop and proj_fprop)
// The weight is stored (out, in), as PyTorch stores it: a slice's weights stand together.
#include "program/layer_passes/layer_passes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace foreplan {

namespace {

class Splitter {
public:
  Splitter(LayerProgram& layer, int slices) : layer_(layer), slices_(slices) {
    for (SlotKind kind : slot_kinds)
      for (Op const& op : ops_of(layer, kind))
        next_op_ = std::max(next_op_, op.id.value() + 1);
  }

  std::vector<Op> rewrite(std::vector<Op> const& ops) {
    std::vector<Op> result;
    std::vector<Op> joins; // each behind its product, in front of what reads the whole
    for (Op const& op : ops) {
      auto const needed = std::find_if(joins.begin(), joins.end(), [&](Op const& join) {
        return std::find(op.reads.begin(), op.reads.end(), join.writes[0]) != op.reads.end();
      });
      if (needed != joins.end()) {
        result.push_back(std::move(*needed));
        joins.erase(needed);
      }
      if (op.kind == OpKind::linear_forward && op.transposed)
        joins.push_back(split(op, result));
      else
        result.push_back(op);
    }
    return result;
  }

private:
  // Appends the products and returns what joins their columns.
  Op split(Op const& op, std::vector<Op>& result) {
    TensorId const y = op.writes[0];
    Tensor blocks = layer_[y];
    blocks.name += " by columns";
    blocks.offset = 0;
    blocks.buffer = {BufferRef::Scope::local, static_cast<std::int32_t>(layer_.buffers.size())};
    layer_.buffers.push_back({blocks.name, Category::communication, blocks.dtype, blocks.elements(), false});
    for (int i = 0; i < slices_; ++i) {
      Op product = op;
      product.id = OpId(next_op_++);
      product.name += fmt::format(", columns {}", i);
      product.reads[1] = part(layer_[op.reads[1]], 0, i);
      product.writes[0] = part(blocks, blocks.shape.size() - 1, i);
      result.push_back(std::move(product));
    }
    Op join = op;
    join.id = OpId(next_op_++);
    join.kind = OpKind::unpack_heads;
    join.name += ", columns joined";
    join.transposed = false;
    join.context_shards = slices_;
    join.reads = {add(std::move(blocks))};
    join.writes = {y};
    return join;
  }

  TensorId part(Tensor tensor, std::size_t dimension, int slice) {
    tensor.name += fmt::format(", columns {}", slice);
    tensor.shape[dimension] /= slices_;
    tensor.offset += slice * tensor.elements();
    return add(std::move(tensor));
  }

  TensorId add(Tensor tensor) {
    layer_.tensors.push_back(std::move(tensor));
    return TensorId(static_cast<std::int64_t>(layer_.tensors.size()) - 1);
  }

  LayerProgram& layer_;
  int slices_;
  std::int32_t next_op_ = 0;
};

} // namespace

void split_columns(LayerProgram& layer, Plan const& plan) {
  if (column_slices(plan) == 1 || plan.tp == 1 || layer.kind != LayerKind::block)
    return;
  layer.forward = Splitter(layer, column_slices(plan)).rewrite(layer.forward);
}

} // namespace foreplan

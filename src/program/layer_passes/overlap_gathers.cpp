// Overlap of a gather of tokens with the product that needs them, with user buffers (Transformer Engine's method
// "ring_exchange", module/base.py: initialize_ub, qkv_fprop, fc1_fprop, proj_dgrad and fc2_dgrad) and PyTorch's async
// tensor parallelism: the product is cut into the blocks of rows that belong to the ranks of the group; while one is
// computed, the next arrives from the neighbour. What the product writes, every other op sees whole.
// The reductions are split_columns's; gathers and reductions beside weight gradients overlap as they are ("bulk").
#include "program/layer_passes/layer_passes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace foreplan {

namespace {

class Overlapper {
public:
  Overlapper(LayerProgram& layer, Plan const& plan) : layer_(layer), ranks_(plan.tp) {
    for (SlotKind kind : slot_kinds)
      for (Op const& op : ops_of(layer, kind))
        next_op_ = std::max(next_op_, op.id.value() + 1);
  }

  std::vector<Op> rewrite(std::vector<Op> const& ops) {
    std::vector<Op> result;
    for (std::size_t i = 0; i < ops.size(); ++i)
      if (i + 1 < ops.size() && needs(ops[i + 1], ops[i])) {
        overlap(ops[i], ops[i + 1], result);
        ++i;
      } else {
        result.push_back(ops[i]);
      }
    return result;
  }

private:
  static bool needs(Op const& product, Op const& gather) {
    return gather.kind == OpKind::all_gather &&
           (product.kind == OpKind::linear_forward || product.kind == OpKind::linear_input_gradient) &&
           product.reads[0] == gather.writes[0];
  }

  void overlap(Op const& gather, Op const& product, std::vector<Op>& result) {
    TensorId const whole = gather.writes[0], y = product.writes[0];
    Op own = gather;
    own.kind = OpKind::cast;
    own.name = "own block of " + gather.name;
    own.stream = Stream::compute;
    own.group = {};
    TensorId block = block_of(whole, 0);
    own.writes = {block};
    append(std::move(own), result);
    for (int hop = 0; hop < ranks_; ++hop) {
      TensorId const next = hop + 1 < ranks_ ? block_of(whole, hop + 1) : block;
      if (hop + 1 < ranks_) {
        Op shift = gather;
        shift.kind = OpKind::ring_shift;
        shift.name += fmt::format(", block {}", hop + 1);
        shift.reads = {block};
        shift.writes = {next};
        append(std::move(shift), result);
      }
      Op part = product;
      part.name += fmt::format(", block {}", hop);
      part.reads[0] = block;
      part.writes[0] = block_of(y, hop);
      append(std::move(part), result);
      block = next;
    }
  }

  void append(Op op, std::vector<Op>& result) {
    op.id = OpId(next_op_++);
    result.push_back(std::move(op));
  }

  // The rows of the rank so many places before.
  TensorId block_of(TensorId id, int hop) {
    Tensor block = layer_[id];
    block.name += fmt::format(", block {}", hop);
    block.shape[0] /= ranks_;
    block.hop = hop;
    block.hops = ranks_;
    layer_.tensors.push_back(std::move(block));
    return TensorId(static_cast<std::int64_t>(layer_.tensors.size()) - 1);
  }

  LayerProgram& layer_;
  int ranks_;
  std::int32_t next_op_ = 0;
};

} // namespace

void overlap_gathers(LayerProgram& layer, Plan const& plan) {
  if (!plan.tp_overlap || plan.tp == 1 || layer.kind != LayerKind::block)
    return;
  Overlapper overlapper(layer, plan);
  layer.forward = overlapper.rewrite(layer.forward);
  layer.backward = overlapper.rewrite(layer.backward);
}

} // namespace foreplan

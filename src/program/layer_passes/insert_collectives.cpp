// Collectives inside a layer, from placements alone: whenever an op writes a partial sum that is declared whole, a
// reduction follows it; whenever it reads a token shard where its rule asks for all tokens, a gather precedes it. With the
// placements of tensor_parallel and sequence_parallel this gives Megatron's collectives (notes: algorithms.md 6.1).
#include "program/layer_passes/layer_passes.hpp"

#include "program/placement_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

namespace foreplan {

namespace {

class Inserter {
public:
  Inserter(LayerProgram& layer, Plan const& plan) : layer_(layer), plan_(plan) {
    for (Op const& op : layer.forward)
      next_op_ = std::max(next_op_, op.id.value() + 1);
    for (Op const& op : layer.backward)
      next_op_ = std::max(next_op_, op.id.value() + 1);
  }

  std::vector<Op> rewrite(std::vector<Op> const& ops) {
    gathered_.clear();
    result_.clear();
    for (Op op : ops) {
      gather_reads(op);
      reduce_writes(std::move(op));
    }
    reduce_late({});
    return std::move(result_);
  }

private:
  struct Reduction {
    OpKind kind;
    TensorId from, to;
    Part part;
  };

  Operands operands_of(Op const& op) const {
    Operands operands;
    for (TensorId id : op.reads)
      operands.reads.push_back(&layer_[id]);
    for (TensorId id : op.writes)
      operands.writes.push_back(&layer_[id]);
    return operands;
  }

  // Replaces token shards by gathered copies where the op's rule does not take shards.
  void gather_reads(Op& op) {
    if (written_placements(op, operands_of(op), Axis::tp))
      return;
    std::size_t const place = place_of_gather(op);
    for (TensorId& id : op.reads)
      if (layer_[id].residual && layer_[id].placement[Axis::tp] == sharded(0))
        id = gather(id, op.part, place);
  }

  // A gather of a tensor kept for the weight gradient is issued one op early, under the input gradient of the same
  // linear (Megatron's column-parallel backward).
  std::size_t place_of_gather(Op const& op) const {
    std::size_t place = result_.size();
    if (op.kind != OpKind::linear_weight_gradient || !plan_.execution.async_tensor_parallel)
      return place;
    while (place > 0 && is_collective(result_[place - 1].kind))
      --place;
    bool const follows_input_gradient = place > 0 && result_[place - 1].kind == OpKind::linear_input_gradient;
    return follows_input_gradient ? place - 1 : result_.size();
  }

  TensorId gather(TensorId id, Part part, std::size_t place) {
    if (auto found = gathered_.find(id); found != gathered_.end())
      return found->second;
    TensorId const whole = full_copy(id, layer_[id].name + " (all tokens)", replicated);
    insert(place, OpKind::all_gather, "gather " + layer_[id].name, part, id, whole);
    gathered_[id] = whole;
    return whole;
  }

  void reduce_writes(Op op) {
    std::string reason;
    auto const placements = written_placements(op, operands_of(op), Axis::tp, &reason);
    if (!placements)
      throw std::logic_error(layer_.name + ", " + op.name + ": " + reason);
    std::vector<Reduction> reductions;
    for (std::size_t i = 0; i < op.writes.size(); ++i) {
      TensorId const declared = op.writes[i];
      AxisPlacement const given = (*placements)[i];
      if (given == layer_[declared].placement[Axis::tp])
        continue;
      if (layer_[declared].buffer.scope == BufferRef::Scope::gradient) {
        accumulate_as(declared, given);
      } else if (given == partial_sum && layer_[declared].placement[Axis::tp] == sharded(0)) {
        op.writes[i] = full_copy(declared, layer_[declared].name + " (partial)", given);
        reductions.push_back({OpKind::reduce_scatter, op.writes[i], declared, op.part});
      } else {
        op.writes[i] = alias(declared, given);
        reductions.push_back({OpKind::all_reduce, op.writes[i], declared, op.part});
      }
    }
    bool const blocks = op.kind == OpKind::linear_input_gradient && !plan_.execution.async_tensor_parallel;
    result_.push_back(std::move(op));
    reduce_late(blocks ? std::exchange(reductions, {}) : std::vector<Reduction>{});
    for (Reduction const& reduction : reductions)
      reduce(reduction);
  }

  // Where the trainer sums input gradients in an autograd node of its own, that comes after both products of the linear:
  // puts in what has waited for the op before, and keeps what waits for the next.
  void reduce_late(std::vector<Reduction> reductions) {
    std::swap(late_, reductions);
    for (Reduction const& reduction : reductions)
      reduce(reduction);
  }

  void reduce(Reduction const& reduction) {
    insert(result_.size(), reduction.kind, "reduce " + layer_[reduction.to].name, reduction.part, reduction.from,
           reduction.to);
  }

  // A gradient accumulates what its op gives; the step passes reduce it once a step.
  void accumulate_as(TensorId gradient, AxisPlacement given) {
    Tensor& tensor = layer_[gradient];
    tensor.placement[Axis::tp] = given;
    layer_.parameters[static_cast<std::size_t>(tensor.buffer.index)].gradient_placement[Axis::tp] = given;
  }

  // A tensor with the tokens of all ranks of the group, in a buffer of its own.
  TensorId full_copy(TensorId id, std::string name, AxisPlacement placement) {
    Tensor copy = layer_[id];
    copy.name = std::move(name);
    copy.shape[0] *= plan_.tp;
    copy.placement[Axis::tp] = placement;
    copy.residual = false;
    copy.offset = 0;
    copy.buffer = {BufferRef::Scope::local, static_cast<std::int32_t>(layer_.buffers.size())};
    layer_.buffers.push_back({copy.name, Category::communication, copy.dtype, copy.elements(), false});
    return add(std::move(copy));
  }

  // The same storage before its reduction.
  TensorId alias(TensorId id, AxisPlacement placement) {
    Tensor copy = layer_[id];
    copy.placement[Axis::tp] = placement;
    copy.name += placement == partial_max ? " (partial maximum)" : " (partial)";
    return add(std::move(copy));
  }

  TensorId add(Tensor tensor) {
    layer_.tensors.push_back(std::move(tensor));
    return TensorId(static_cast<std::int64_t>(layer_.tensors.size()) - 1);
  }

  void insert(std::size_t place, OpKind kind, std::string name, Part part, TensorId from, TensorId to) {
    Op op;
    op.id = OpId(next_op_++);
    op.kind = kind;
    op.name = std::move(name);
    op.part = part;
    op.stream = Stream::tp;
    op.reads = {from};
    op.writes = {to};
    op.group = {Axis::tp, false};
    result_.insert(result_.begin() + static_cast<std::ptrdiff_t>(place), std::move(op));
  }

  LayerProgram& layer_;
  Plan const& plan_;
  std::int32_t next_op_ = 0;
  std::vector<Op> result_;
  std::vector<Reduction> late_;           // behind the op that comes next
  std::map<TensorId, TensorId> gathered_; // token shard -> its copy with all tokens, in the list being rewritten
};

} // namespace

void insert_collectives(LayerProgram& layer, Plan const& plan) {
  if (plan.tp == 1)
    return;
  Inserter inserter(layer, plan);
  layer.forward = inserter.rewrite(layer.forward);
  layer.backward = inserter.rewrite(layer.backward);
}

} // namespace foreplan

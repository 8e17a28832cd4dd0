// Recomputation: forward ops are run again in the backward, so that what they wrote need not be kept from F to B.
//   full       the layer's forward, collectives included: only the layer's input is kept. What nobody reads again (the end
//              of the MLP) is left out, as PyTorch's non-reentrant checkpoint stops early; Megatron-LM's own runs it too
//   selective  the attention core (Korthikanti et al., arXiv 2205.05198, section 5)
#include "program/layer_passes/layer_passes.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

namespace foreplan {

namespace {

class Rebuilder {
public:
  explicit Rebuilder(LayerProgram& layer) : layer_(layer) {
    for (auto const* ops : {&layer.forward, &layer.backward})
      for (Op const& op : *ops)
        next_op_ = std::max(next_op_, op.id.value() + 1);
  }

  // A copy of a forward op that reads and writes rebuilt tensors.
  Op again(Op op) {
    op.id = OpId(next_op_++);
    op.name += " again";
    op.part = Part::input_gradient;
    op.left_over = op.takes_over = false; // autograd runs a layer that it recomputes by itself
    for (TensorId& id : op.writes)
      id = rebuilt(id);
    for (TensorId& id : op.reads)
      id = current(id);
    return op;
  }

  // What holds the tensor's value in the backward: the rebuilt tensor if there is one, or if parts of it are rebuilt.
  TensorId current(TensorId id) { return buffers_.contains(layer_[id].buffer) ? rebuilt(id) : id; }

  void forget(TensorId id) {
    rebuilt_.erase(id);
    buffers_.erase(layer_[id].buffer);
  }

private:
  // In-place ops write a tensor that has been rebuilt already; views of one buffer stay views of one buffer.
  TensorId rebuilt(TensorId id) {
    if (auto const found = rebuilt_.find(id); found != rebuilt_.end())
      return found->second;
    Tensor copy = layer_[id];
    auto const [buffer, is_new] = buffers_.try_emplace(copy.buffer, static_cast<std::int32_t>(layer_.buffers.size()));
    if (is_new)
      layer_.buffers.push_back(buffer_like(copy));
    copy.name += " again";
    copy.buffer = {BufferRef::Scope::local, buffer->second};
    layer_.tensors.push_back(std::move(copy));
    return rebuilt_[id] = TensorId(static_cast<std::int64_t>(layer_.tensors.size()) - 1);
  }

  Buffer buffer_like(Tensor const& tensor) const {
    if (tensor.buffer.scope == BufferRef::Scope::local) {
      Buffer buffer = layer_.buffers[static_cast<std::size_t>(tensor.buffer.index)];
      buffer.name += " again";
      return buffer;
    }
    return {tensor.name + " again", tensor.category, tensor.dtype, tensor.elements(), false};
  }

  LayerProgram& layer_;
  std::int32_t next_op_ = 0;
  std::map<TensorId, TensorId> rebuilt_;
  std::map<BufferRef, std::int32_t> buffers_;
};

void redirect_reads(std::vector<Op>& ops, Rebuilder& rebuilder) {
  for (Op& op : ops) {
    for (TensorId& id : op.reads)
      id = rebuilder.current(id);
    for (TensorId& id : op.writes)
      id = rebuilder.current(id);
  }
}

// A dropout mask is drawn, not computed: where nothing else of an op is needed, its operands are not needed either.
bool only_mask_is_read(LayerProgram const& layer, Op const& op, std::vector<TensorId> const& read_writes) {
  bool const draws_mask = op.kind == OpKind::bias_add || op.kind == OpKind::dropout_forward;
  return draws_mask && read_writes.size() == 1 && layer[read_writes[0]].dtype == DType::uint8;
}

Op mask_again(Op op, std::vector<TensorId> mask) {
  op.kind = OpKind::dropout_mask;
  op.name += " (mask)";
  op.reads.clear();
  op.writes = std::move(mask);
  return op;
}

// Leaves out the ops whose results nobody reads: neither `readers` nor later ops of the list.
std::vector<Op> without_unused(LayerProgram const& layer, std::vector<Op> const& ops, std::vector<Op> const& readers) {
  std::set<BufferRef> read;
  auto add_reads = [&](Op const& op) {
    for (TensorId id : op.reads)
      read.insert(layer[id].buffer);
  };
  for (Op const& op : readers)
    add_reads(op);
  std::vector<Op> used;
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    std::vector<TensorId> read_writes;
    std::copy_if(op->writes.begin(), op->writes.end(), std::back_inserter(read_writes),
                 [&](TensorId id) { return read.contains(layer[id].buffer); });
    if (read_writes.empty())
      continue;
    used.push_back(only_mask_is_read(layer, *op, read_writes) ? mask_again(*op, read_writes) : *op);
    add_reads(used.back());
  }
  std::reverse(used.begin(), used.end());
  return used;
}

void full(LayerProgram& layer, bool with_unused) {
  Rebuilder rebuilder(layer);
  std::vector<Op> backward;
  for (Op const& op : layer.forward)
    backward.push_back(rebuilder.again(op));
  redirect_reads(layer.backward, rebuilder);
  for (Op& op : layer.backward)
    op.left_over = op.takes_over = false;
  if (!with_unused)
    backward = without_unused(layer, backward, layer.backward);
  backward.insert(backward.end(), layer.backward.begin(), layer.backward.end());
  layer.backward = std::move(backward);
  layer.name += ", full recompute";
}

void selective(LayerProgram& layer, bool with_unused) {
  Rebuilder rebuilder(layer);
  std::vector<Op> core;
  std::set<TensorId> kept; // the core's output, which the projection keeps anyway
  for (Op const& op : layer.forward) {
    if (op.core_attention)
      core.push_back(rebuilder.again(op));
    else
      kept.insert(op.reads.begin(), op.reads.end());
  }
  for (TensorId id : kept)
    rebuilder.forget(id);
  std::vector<Op> redirected = layer.backward;
  redirect_reads(redirected, rebuilder);
  if (!with_unused)
    core = without_unused(layer, core, redirected);
  auto const changed = [](Op const& a, Op const& b) { return a.reads != b.reads; };
  auto const first =
      std::mismatch(redirected.begin(), redirected.end(), layer.backward.begin(), [&](Op const& a, Op const& b) {
        return !changed(a, b);
      }).first;
  redirected.insert(first, core.begin(), core.end());
  layer.backward = std::move(redirected);
  layer.name += ", selective recompute";
}

} // namespace

void recompute(LayerProgram& layer, Plan const& plan, Recompute what) {
  if (layer.kind != LayerKind::block || what == Recompute::none)
    return;
  if (what == Recompute::full)
    full(layer, plan.recompute_unused);
  else
    selective(layer, plan.recompute_unused);
}

} // namespace foreplan

// Context parallelism: the tokens of each sequence are shared out among the ranks of the cp group (token_layout.hpp).
// Only attention needs tokens of other ranks:
//   all_gather  keys and values of all ranks are gathered; the backward gathers them again and scatters the sum of their
//               gradients (Llama 3, arXiv 2407.21783, section 3.3.2)
//   all_to_all  every rank gets all tokens of 1/cp of the heads, and gives them back (DeepSpeed-Ulysses, arXiv 2309.14509);
//               KV heads that are fewer than ranks are sent to several, and their gradients summed
//   ring        blocks of keys and values go round the ranks under the attention to the block before; so do, one step
//               behind, their gradients (Ring Attention, arXiv 2310.01889; as in Transformer Engine)
// Everything else works on the rank's own tokens as it is.
#include "program/layer_passes/layer_passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace foreplan {

namespace {

class Rewriter {
public:
  Rewriter(LayerProgram& layer, Plan const& plan) : layer_(layer), plan_(plan) {
    for (SlotKind kind : slot_kinds)
      for (Op const& op : ops_of(layer, kind))
        next_op_ = std::max(next_op_, op.id.value() + 1);
  }

  void run() {
    for (std::vector<Op>* ops : {&layer_.forward, &layer_.backward}) {
      std::vector<Op> const before = std::exchange(*ops, {});
      to_ = ops;
      for (Op const& op : before)
        if (op.kind == OpKind::attention_forward || op.kind == OpKind::attention_backward)
          rewrite(op);
        else
          to_->push_back(op);
    }
  }

private:
  void rewrite(Op const& op) {
    bool const forward = op.kind == OpKind::attention_forward;
    like_ = op;
    switch (plan_.cp_type) {
      case ContextParallel::all_gather: return forward ? gather_forward() : gather_backward();
      case ContextParallel::all_to_all: return forward ? exchange_forward() : exchange_backward();
      case ContextParallel::ring: return forward ? ring_forward() : ring_backward();
    }
  }

  // ------------------------------------------------------------------------------------------------- all-gather of K, V

  void gather_forward() {
    TensorId const all = gathered(taken(like_.reads[0]));
    kernel(OpKind::attention_forward, like_.name, {like_.reads[0], all}, like_.writes);
  }

  void gather_backward() {
    TensorId const qkv = like_.reads[0], dqkv = like_.writes[0];
    TensorId const all = gathered(taken(qkv));
    TensorId const dall = copy(layer_[all], "d keys, values of all ranks", Category::communication);
    layer_[dall].placement[Axis::cp] = partial_sum;
    TensorId const dkv = keys_values(qkv, "d keys, values");
    std::vector<TensorId> reads = like_.reads;
    reads.push_back(all);
    kernel(OpKind::attention_backward, like_.name, reads, {dqkv, dall});
    collective(OpKind::reduce_scatter, "reduce d keys, values", dall, dkv);
    kernel(OpKind::put_keys_values, "put d keys, values", {dkv, dqkv}, {dqkv});
  }

  TensorId gathered(TensorId kv) {
    Tensor tensor = layer_[kv];
    tensor.shape[0] *= plan_.cp;
    tensor.placement[Axis::cp] = replicated;
    TensorId const all = copy(std::move(tensor), "keys, values of all ranks", Category::communication);
    collective(OpKind::all_gather, "gather keys, values", kv, all);
    return all;
  }

  // ---------------------------------------------------------------------------------------------------------- all-to-all

  void exchange_forward() {
    TensorId const heads = by_heads(like_.reads[0]);
    TensorId const o = head_shard(shared(layer_[like_.writes[0]]), 1);
    TensorId const lse = like_.writes[1];
    place_by_heads(lse);
    kernel(OpKind::attention_forward, like_.name, {heads}, {o, lse});
    by_tokens(o, like_.writes[0]);
    exchanged_ = {heads, o};
  }

  void exchange_backward() {
    TensorId const d_o = by_heads(like_.reads[3]);
    TensorId const dheads = head_shard(shared(layer_[like_.writes[0]]), 1);
    kernel(OpKind::attention_backward, like_.name, {exchanged_.first, exchanged_.second, like_.reads[2], d_o},
           {dheads});
    by_tokens(dheads, like_.writes[0]);
  }

  // qkv [T, g, q + 2, d] or o [T, g, q d] with a group of heads for every rank. Where there are fewer KV heads, cp / g ranks
  // share one: each gets a part of its queries, and all of its key and value.
  Tensor shared(Tensor tensor) const {
    std::int64_t const groups = tensor.shape[1];
    if (groups % plan_.cp == 0)
      return tensor;
    std::int64_t const sharers = plan_.cp / groups;
    tensor.shape[1] = plan_.cp;
    tensor.shape[2] = tensor.shape.size() == 4 ? (tensor.shape[2] - 2) / sharers + 2 : tensor.shape[2] / sharers;
    return tensor;
  }

  // All tokens of this rank's heads.
  TensorId by_heads(TensorId x) {
    TensorId const packed = copy(shared(layer_[x]), layer_[x].name + " packed", Category::communication);
    TensorId const y = head_shard(shared(layer_[x]), 1);
    kernel(OpKind::pack_heads, "pack " + layer_[x].name, {x}, {packed});
    collective(OpKind::all_to_all, "exchange " + layer_[x].name, packed, y);
    return y;
  }

  // And back: all heads of this rank's tokens.
  void by_tokens(TensorId x, TensorId y) {
    TensorId const packed = copy(shared(layer_[y]), layer_[y].name + " packed", Category::communication);
    collective(OpKind::all_to_all, "exchange " + layer_[y].name, x, packed);
    kernel(OpKind::unpack_heads, "unpack " + layer_[y].name, {packed}, {y});
  }

  // `tensor` with the tokens of all ranks and 1/cp of the heads, which are dimension `heads`.
  TensorId head_shard(Tensor tensor, int heads) {
    tensor.name += " by heads";
    tensor.shape[0] *= plan_.cp;
    tensor.shape[static_cast<std::size_t>(heads)] /= plan_.cp;
    tensor.placement[Axis::cp] = sharded(heads);
    return in_new_buffer(std::move(tensor), Category::activations);
  }

  // The log-sum-exp is used by attention alone.
  void place_by_heads(TensorId lse) {
    Tensor& tensor = layer_[lse];
    tensor.shape[0] *= plan_.cp;
    tensor.shape[1] /= plan_.cp;
    tensor.placement[Axis::cp] = sharded(1);
  }

  // ---------------------------------------------------------------------------------------------------------------- ring

  void ring_forward() {
    TensorId const qkv = like_.reads[0], o = like_.writes[0], lse = like_.writes[1];
    TensorId block = taken(qkv);
    for (int hop = 0; hop < plan_.cp; ++hop) {
      TensorId const here = block;
      if (hop + 1 < plan_.cp)
        block = passed_on(here, "keys, values");
      if (hop == 0) {
        kernel(OpKind::attention_forward, like_.name, {qkv, here}, {o, lse}).hop = hop;
        continue;
      }
      TensorId const part = copy(layer_[o], "partial attention output", Category::activations);
      TensorId const part_lse = copy(layer_[lse], "partial log-sum-exp", Category::activations);
      kernel(OpKind::attention_forward, fmt::format("{}, hop {}", like_.name, hop), {qkv, here}, {part, part_lse}).hop =
          hop;
      kernel(OpKind::attention_merge, fmt::format("merge hop {}", hop), {o, lse, part, part_lse}, {o, lse});
    }
  }

  // The gradient of a block starts at the rank behind its own, gathers the parts of the others on its way, and ends at its
  // own rank, where that rank's part waits for it.
  void ring_backward() {
    TensorId const qkv = like_.reads[0], dqkv = like_.writes[0];
    TensorId const own = keys_values(qkv, "d keys, values");
    TensorId block = taken(qkv);
    TensorId travelling;
    for (int hop = 0; hop < plan_.cp; ++hop) {
      TensorId const here = block;
      if (hop + 1 < plan_.cp)
        block = passed_on(here, "keys, values");
      bool const arrives = hop >= 2;
      TensorId const arrived = arrives ? passed_on(travelling, "d keys, values") : TensorId{};
      TensorId part = hop == 0 ? own : copy(layer_[own], "partial d keys, values", Category::activations);
      std::vector<TensorId> reads = like_.reads;
      reads.push_back(here);
      if (hop > 0)
        reads.push_back(dqkv);
      kernel(OpKind::attention_backward, hop == 0 ? like_.name : fmt::format("{}, hop {}", like_.name, hop), reads,
             {dqkv, part})
          .hop = hop;
      travelling = arrives ? summed(part, arrived) : part;
    }
    TensorId const home = passed_on(travelling, "d keys, values");
    kernel(OpKind::put_keys_values, "put d keys, values", {summed(own, home), dqkv}, {dqkv});
  }

  // The block that the rank before this one passes on.
  TensorId passed_on(TensorId block, std::string const& what) {
    TensorId const next = copy(layer_[block], what + " passed on", Category::communication);
    collective(OpKind::ring_shift, "pass on " + what, block, next);
    return next;
  }

  TensorId summed(TensorId a, TensorId b) {
    TensorId const sum = copy(layer_[a], "summed d keys, values", Category::activations);
    kernel(OpKind::add, "add d keys, values", {a, b}, {sum});
    return sum;
  }

  // ------------------------------------------------------------------------------------------------------ writing it down

  // [T, g, 2, d], as qkv is [T, g, q + 2, d].
  TensorId keys_values(TensorId qkv, std::string name) {
    Tensor tensor = layer_[qkv];
    tensor.name = std::move(name);
    tensor.shape[2] = 2;
    return in_new_buffer(std::move(tensor), Category::activations);
  }

  TensorId taken(TensorId qkv) {
    TensorId const kv = keys_values(qkv, "keys, values");
    kernel(OpKind::take_keys_values, "take keys, values", {qkv}, {kv});
    return kv;
  }

  TensorId copy(Tensor tensor, std::string name, Category category) {
    tensor.name = std::move(name);
    return in_new_buffer(std::move(tensor), category);
  }

  TensorId in_new_buffer(Tensor tensor, Category category) {
    tensor.category = category;
    tensor.buffer = {BufferRef::Scope::local, static_cast<std::int32_t>(layer_.buffers.size())};
    layer_.buffers.push_back({tensor.name, category, tensor.dtype, tensor.elements(), false});
    layer_.tensors.push_back(std::move(tensor));
    return TensorId(static_cast<std::int64_t>(layer_.tensors.size()) - 1);
  }

  Op& kernel(OpKind kind, std::string name, std::vector<TensorId> reads, std::vector<TensorId> writes) {
    Op op = like_; // part, sequence length, what selective recompute drops
    op.id = OpId(next_op_++);
    op.kind = kind;
    op.name = std::move(name);
    op.reads = std::move(reads);
    op.writes = std::move(writes);
    to_->push_back(std::move(op));
    return to_->back();
  }

  void collective(OpKind kind, std::string name, TensorId from, TensorId to) {
    Op& op = kernel(kind, std::move(name), {from}, {to});
    op.stream = Stream::cp;
    op.group = {Axis::cp, false};
  }

  LayerProgram& layer_;
  Plan const& plan_;
  std::int32_t next_op_ = 0;
  std::vector<Op>* to_ = nullptr;
  Op like_;                                 // the attention op being rewritten
  std::pair<TensorId, TensorId> exchanged_; // qkv and o by heads, kept for the backward
};

} // namespace

void context_parallel(LayerProgram& layer, Plan const& plan) {
  if (plan.cp > 1 && layer.kind == LayerKind::block)
    Rewriter(layer, plan).run();
}

} // namespace foreplan

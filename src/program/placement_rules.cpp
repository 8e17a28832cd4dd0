#include "program/placement_rules.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace foreplan {

namespace {

using Placements = std::vector<AxisPlacement>;
using Result = std::optional<Placements>;

bool is_sharded(AxisPlacement p) { return p.kind == AxisPlacement::Kind::sharded; }
bool is_partial(AxisPlacement p) { return p == partial_sum || p == partial_max || p == sum_terms; }
bool by_tokens(AxisPlacement p) { return p == sharded(0); }
bool by_feature(AxisPlacement p) { return is_sharded(p) && p.dimension > 0; }

// All operands alike, none a partial sum: element-wise work on shards is a shard of the element-wise work.
Result same_for_all(Placements const& reads, std::size_t writes) {
  for (AxisPlacement p : reads)
    if (p != reads[0] || is_partial(p))
      return std::nullopt;
  return Placements(writes, reads[0]);
}

// Rows are tokens; `feature` is replicated and the same for every row.
Result per_token(AxisPlacement rows, AxisPlacement feature, std::size_t writes) {
  if (feature != replicated || !(rows == replicated || by_tokens(rows)))
    return std::nullopt;
  return Placements(writes, rows);
}

// A sum over tokens: whole where the tokens are, a part of the sum where they are sharded.
AxisPlacement token_sum(AxisPlacement rows) { return by_tokens(rows) ? partial_sum : replicated; }

// How a weight is cut, in terms of the product: along its inputs, its outputs, or not at all.
struct WeightCut {
  bool inputs = false;
  bool outputs = false;
};

WeightCut cut_of(Op const& op, Tensor const& weight, AxisPlacement placement) {
  if (!is_sharded(placement))
    return {};
  auto const last = static_cast<int>(weight.shape.size()) - 1;
  bool const inputs = op.transposed ? placement.dimension == last : placement.dimension == 0;
  return {inputs, !inputs};
}

// The declared cut of an activation along a feature dimension (its position depends on its shape, not on the rule).
AxisPlacement feature_cut(Tensor const& tensor, Axis axis) {
  AxisPlacement const declared = tensor.placement[axis];
  return by_feature(declared) ? declared : sharded(1);
}

Result linear_forward(Op const& op, Operands const& o, Placements const& reads, Axis axis) {
  if (is_partial(reads[0]) || is_partial(reads[1]))
    return std::nullopt;
  WeightCut const cut = cut_of(op, *o.reads[1], reads[1]);
  bool const has_bias = reads.size() > 2;
  AxisPlacement const bias = has_bias ? reads[2] : replicated;
  if (cut.outputs) {
    bool const bias_fits = !has_bias || is_sharded(bias);
    return reads[0] == replicated && bias_fits ? Result(Placements{feature_cut(*o.writes[0], axis)}) : std::nullopt;
  }
  if (bias != replicated)
    return std::nullopt;
  if (cut.inputs)
    return by_feature(reads[0]) && !has_bias ? Result(Placements{partial_sum}) : std::nullopt;
  return per_token(reads[0], reads[1], 1);
}

Result linear_input_gradient(Op const& op, Operands const& o, Placements const& reads, Axis axis) {
  if (is_partial(reads[0]) || is_partial(reads[1]))
    return std::nullopt;
  WeightCut const cut = cut_of(op, *o.reads[1], reads[1]);
  if (cut.outputs)
    return by_feature(reads[0]) ? Result(Placements{partial_sum}) : std::nullopt;
  if (cut.inputs)
    return reads[0] == replicated ? Result(Placements{feature_cut(*o.writes[0], axis)}) : std::nullopt;
  return per_token(reads[0], reads[1], 1);
}

Result linear_weight_gradient(Op const& op, Operands const& o, Placements const& reads, Axis axis) {
  AxisPlacement const x = reads[0], dy = reads[1];
  Tensor const& dweight = *o.writes[0];
  auto const last = static_cast<int>(dweight.shape.size()) - 1;
  AxisPlacement const of_inputs = sharded(op.transposed ? last : 0);
  Placements result;
  if (x == dy && (x == replicated || by_tokens(x))) {
    result.push_back(token_sum(x));
  } else if (x == replicated && by_feature(dy)) {
    // Which output dimension dy's cut is, its shape does not say: the one that the weight declares.
    AxisPlacement const declared = dweight.placement[axis];
    if (!is_sharded(declared) || declared == of_inputs)
      return std::nullopt;
    result.push_back(declared);
  } else if (by_feature(x) && dy == replicated) {
    result.push_back(of_inputs);
  } else {
    return std::nullopt;
  }
  if (o.writes.size() > 1)
    result.push_back(by_feature(dy) ? sharded(dy.dimension - 1) : token_sum(dy));
  return result;
}

Result norm_backward(Operands const& o, Placements const& reads) {
  // dy, x, weight, [dresidual], accumulators: one per written gradient
  std::size_t const gradients = o.writes.size() - 1;
  bool const has_residual = reads.size() == 4 + gradients;
  if (reads[0] != reads[1] || (has_residual && reads[3] != reads[0]))
    return std::nullopt;
  Result result = per_token(reads[0], reads[2], 1);
  if (result)
    result->insert(result->end(), gradients, token_sum(reads[0]));
  return result;
}

Result embedding_forward(Placements const& reads) {
  if (reads[1] == sharded(0))
    return reads[0] == replicated ? Result(Placements{partial_sum}) : std::nullopt;
  return per_token(reads[0], reads[1], 1);
}

Result embedding_backward(Operands const& o, Placements const& reads, Axis axis) {
  if (reads[0] != reads[1] || !(reads[0] == replicated || by_tokens(reads[0])))
    return std::nullopt;
  if (o.writes[0]->placement[axis] == sharded(0)) // each rank keeps the rows it holds
    return reads[0] == replicated ? Result(Placements{sharded(0)}) : std::nullopt;
  return Placements{token_sum(reads[0])};
}

// logits [T, V], then per-token operands
bool per_token_beside_logits(AxisPlacement logits, Placements const& rest) {
  AxisPlacement const expected = by_tokens(logits) ? sharded(0) : replicated;
  return std::all_of(rest.begin(), rest.end(), [&](AxisPlacement p) { return p == expected; });
}

Result loss(Op const& op, Placements const& reads) {
  AxisPlacement const logits = reads[0];
  if (op.kind == OpKind::loss_forward) // sums, loss
    return logits == replicated || by_tokens(logits) ? Result(Placements{token_sum(logits)}) : std::nullopt;
  if (is_partial(logits) || !per_token_beside_logits(logits, Placements(reads.begin() + 1, reads.end())))
    return std::nullopt;
  if (op.kind == OpKind::loss_backward)
    return Placements{logits};
  if (by_feature(logits))
    return Placements{op.kind == OpKind::loss_maximum ? partial_max : partial_sum};
  return Placements{logits};
}

// Heads shard together; scores and probabilities have them in dimension 1, as qkv. Ranks of a context-parallel group hold
// parts of sequences: their queries need the keys of all of them.
Result attention(Placements const& reads, std::size_t writes, Axis axis) {
  if (axis == Axis::cp && by_tokens(reads[0]))
    return std::nullopt;
  return same_for_all(reads, writes);
}

// qkv, ..., kv, ... -> writes; the operand at `keys` and, in the backward, the last written are of all ranks' tokens, or a
// block of one rank's.
Result attention_with_keys(Op const& op, Placements reads, std::size_t keys, std::size_t writes, Axis axis) {
  bool const whole = op.hop < 0 && axis == Axis::cp;
  if (whole && (!by_tokens(reads[0]) || reads[keys] != replicated))
    return std::nullopt;
  if (whole)
    reads[keys] = reads[0];
  Result result = same_for_all(reads, writes);
  if (result && whole && op.kind == OpKind::attention_backward)
    result->back() = partial_sum;
  return result;
}

Result fused_attention(Op const& op, Placements const& reads, std::size_t writes, Axis axis) {
  std::size_t const keys = op.kind == OpKind::attention_forward ? 1 : 4;
  return reads.size() > keys ? attention_with_keys(op, reads, keys, writes, axis) : attention(reads, writes, axis);
}

Result swiglu(Op const& op, Operands const& o, Placements const& reads, Axis axis) {
  bool const forward = op.kind == OpKind::swiglu_forward;
  AxisPlacement const wide = reads[0];
  if (!by_feature(wide))
    return same_for_all(reads, 1);
  if (wide != sharded(2) || (!forward && reads[1] != sharded(1)))
    return std::nullopt;
  return Placements{feature_cut(*o.writes[0], axis)};
}

// Codes stand for what they were made of, be it whole, a shard or a term of a sum; only a kernel can add them up.
Result encoded(Placements const& reads, std::size_t writes) {
  if (reads[0] == partial_max || reads[0] == sum_terms)
    return std::nullopt;
  return Placements(writes, reads[0]);
}

Result decoded(Placements const& reads, std::size_t writes) {
  if (reads[0] != reads[1] || reads[0] == partial_max)
    return std::nullopt;
  return Placements(writes, reads[0] == sum_terms ? sharded(0) : reads[0]);
}

// The squares of shards add up. What several ranks hold whole gives each of them the whole sum, or a part of it when
// the op scales by 1 / (their number): the scale itself is the verifier's to check.
Result norm_squared(Operands const& o, Placements const& reads, Axis axis) {
  if (is_partial(reads[0]))
    return std::nullopt;
  AxisPlacement const declared = o.writes[0]->placement[axis];
  return Placements{is_sharded(reads[0]) ? partial_sum : declared};
}

Result adam(Placements const& reads, std::size_t writes) {
  // gradient, sum of squares, master, m, v
  if (is_partial(reads[0]) || reads[1] != replicated)
    return std::nullopt;
  for (std::size_t i = 2; i < reads.size(); ++i)
    if (reads[i] != reads[0])
      return std::nullopt;
  return Placements(writes, reads[0]);
}

// Only attention knows whose block a passed-on shard of the cp group is; those of the tp group lie in their places of the
// whole tensor: what was the block of `hop` ranks before is, at the next rank, that of `hop + 1`.
Result ring_shift(Op const& op, Operands const& o, AxisPlacement x, Axis axis) {
  if (op.group.axes == Axis::tp)
    return o.writes[0]->hop == o.reads[0]->hop + 1 ? Result(Placements{x}) : std::nullopt;
  return op.group.axes == Axis::cp && (axis != Axis::cp || by_tokens(x)) ? Result(Placements{x}) : std::nullopt;
}

// A rank's own shard becomes its block of the whole tensor; elsewhere a block stays that of the same rank.
bool blocks_fit(Op const& op, Operands const& o) {
  auto const hop = [](Tensor const* tensor) { return tensor->hop; };
  switch (op.kind) {
    case OpKind::ring_shift: return true;
    case OpKind::cast: return hop(o.writes[0]) == hop(o.reads[0]) || (hop(o.writes[0]) == 0 && hop(o.reads[0]) < 0);
    case OpKind::linear_forward:
    case OpKind::linear_input_gradient: return hop(o.reads[0]) == hop(o.writes[0]);
    default: {
      auto const whole = [&](Tensor const* tensor) { return hop(tensor) < 0; };
      return std::all_of(o.reads.begin(), o.reads.end(), whole) && std::all_of(o.writes.begin(), o.writes.end(), whole);
    }
  }
}

Result cast(Operands const& o, AxisPlacement x, Axis axis) {
  bool const into_whole = axis == Axis::tp && o.writes[0]->hop >= 0 && o.reads[0]->hop < 0;
  if (into_whole)
    return by_tokens(x) ? Result(Placements{replicated}) : std::nullopt;
  return Placements{x};
}

Result collective(Op const& op, AxisPlacement x, Axis axis) {
  if (!op.group.axes.contains(axis))
    return Placements{x};
  switch (op.kind) {
    case OpKind::all_reduce:
      return x == partial_sum || x == partial_max ? Result(Placements{replicated}) : std::nullopt;
    case OpKind::all_to_all:
      if (x == partial_sum)
        return Placements{sum_terms};
      if (by_tokens(x)) // of all heads, packed
        return Placements{sharded(1)};
      return x == sharded(1) ? Result(Placements{sharded(0)}) : std::nullopt;
    case OpKind::reduce_scatter: return x == partial_sum ? Result(Placements{sharded(0)}) : std::nullopt;
    default: return x == sharded(0) ? Result(Placements{replicated}) : std::nullopt; // all_gather
  }
}

Result rule(Op const& op, Operands const& o, Placements const& reads, Axis axis) {
  std::size_t const writes = o.writes.size();
  switch (op.kind) {
    case OpKind::embedding_forward: return embedding_forward(reads);
    case OpKind::embedding_backward: return embedding_backward(o, reads, axis);
    case OpKind::add_positions: return per_token(reads[0], reads[1], 1);
    case OpKind::position_gradient:
    case OpKind::bias_gradient:
      return per_token(reads[0], replicated, 1) ? Result(Placements{token_sum(reads[0])}) : std::nullopt;
    case OpKind::loss_maximum:
    case OpKind::loss_sums:
    case OpKind::loss_forward:
    case OpKind::loss_backward: return loss(op, reads);
    case OpKind::norm_forward:
      return reads.size() > 2 && reads[2] != replicated ? std::nullopt : per_token(reads[0], reads[1], 1);
    case OpKind::norm_backward: return norm_backward(o, reads);
    case OpKind::linear_forward: return linear_forward(op, o, reads, axis);
    case OpKind::linear_input_gradient: return linear_input_gradient(op, o, reads, axis);
    case OpKind::linear_weight_gradient: return linear_weight_gradient(op, o, reads, axis);
    case OpKind::accumulate: return reads[0] == reads[1] ? Result(Placements{reads[1]}) : std::nullopt;
    case OpKind::bias_add:
      return reads[1] == replicated && reads[0] == reads[2] ? per_token(reads[0], reads[1], writes) : std::nullopt;
    case OpKind::attention_forward:
    case OpKind::attention_backward: return fused_attention(op, reads, writes, axis);
    case OpKind::attention_scores:
    case OpKind::attention_softmax:
    case OpKind::attention_context:
    case OpKind::attention_context_backward:
    case OpKind::attention_softmax_backward:
    case OpKind::attention_scores_backward: return attention(reads, writes, axis);
    case OpKind::swiglu_forward:
    case OpKind::swiglu_backward: return swiglu(op, o, reads, axis);
    case OpKind::rope_forward:
    case OpKind::rope_backward:
    case OpKind::take_keys_values:
    case OpKind::put_keys_values:
    case OpKind::attention_merge:
    case OpKind::pack_heads:
    case OpKind::unpack_heads:
    case OpKind::gelu_forward:
    case OpKind::gelu_backward:
    case OpKind::add:
    case OpKind::dropout_forward:
    case OpKind::dropout_backward: return same_for_all(reads, writes);
    case OpKind::cast: return cast(o, reads[0], axis);
    case OpKind::copy: return Placements{reads[0]};
    case OpKind::quantize: return encoded(reads, 2);
    case OpKind::dequantize:
    case OpKind::requantize: return decoded(reads, writes);
    case OpKind::norm_squared: return norm_squared(o, reads, axis);
    case OpKind::adam: return adam(reads, writes);
    case OpKind::all_reduce:
    case OpKind::all_gather:
    case OpKind::reduce_scatter:
    case OpKind::all_to_all:
      if (o.reads[0]->dtype == DType::uint8 && (op.kind == OpKind::all_reduce || op.kind == OpKind::reduce_scatter))
        return std::nullopt; // codes do not add up
      return collective(op, reads[0], axis);
    case OpKind::ring_shift: return ring_shift(op, o, reads[0], axis);
    case OpKind::send:
    case OpKind::wait: return Placements{};
    case OpKind::dropout_mask:
    case OpKind::zero_fill:
    case OpKind::receive: return Placements{o.writes[0]->placement[axis]};
  }
  return std::nullopt;
}

} // namespace

std::optional<std::vector<AxisPlacement>> written_placements(Op const& op, Operands const& operands, Axis axis,
                                                             std::string* reason) {
  Placements reads;
  for (Tensor const* tensor : operands.reads)
    reads.push_back(tensor->placement[axis]);
  Result result = blocks_fit(op, operands) ? rule(op, operands, reads, axis) : std::nullopt;
  if (!result && reason != nullptr) {
    *reason = fmt::format("{} cannot read", to_string(op.kind));
    for (Tensor const* tensor : operands.reads)
      *reason += fmt::format(" {} ({})", tensor->name, to_string(tensor->placement));
    *reason += " along " + to_string(AxisSet(axis));
  }
  return result;
}

} // namespace foreplan

// The fields of a plan as its file names them: each is listed once, with its bounds, for whoever reads, writes or checks
// keys. A visitor is called as visit(key, field) or, for numbers, visit(key, field, least, most).
#pragma once

#include "plan/plan.hpp"

#include <limits>

namespace foreplan {

// Bounds that no plan reaches and within which products of two fields cannot overflow.
inline constexpr std::int64_t most_ranks = 1 << 24;
inline constexpr std::int64_t most_tokens = std::int64_t{1} << 31;
inline constexpr std::int64_t most_elements = std::int64_t{1} << 50;
inline constexpr std::int64_t most_bits = 8;

template <class E, class Visit> // E: Execution, perhaps const
void each_execution_field(E& execution, Visit&& visit) {
  visit("issue", execution.issue);
  visit("fused_accumulation", execution.fused_accumulation);
  visit("async_tensor_parallel", execution.async_tensor_parallel);
  visit("layer_placement", execution.layer_placement);
  visit("eager_activations", execution.eager_activations);
  visit("eager_norms", execution.eager_norms);
  visit("eager_rotary", execution.eager_rotary);
  visit("eager_layout", execution.eager_layout);
  visit("eager_loss", execution.eager_loss);
  visit("broadcast_parameters", execution.broadcast_parameters);
  visit("gradient_launches", execution.gradient_launches, 0, 64);
  visit("portable_attention", execution.portable_attention);
  visit("triton_attention", execution.triton_attention);
  visit("post_validation", execution.post_validation);
}

template <class S, class Visit>
void each_sharding_field(S& sharding, Visit&& visit) {
  visit("reshard", sharding.reshard);
  visit("reduce_once", sharding.reduce_once);
  visit("reduce_replicas_once", sharding.reduce_replicas_once);
  visit("prefetch", sharding.prefetch, 0, most_ranks);
  visit("prefetch_elements", sharding.prefetch_elements, 0, most_elements);
  visit("reuse_distance", sharding.reuse_distance, 0, most_elements);
  visit("max_live_parameters", sharding.max_live, 0, most_elements);
  visit("persistence_threshold", sharding.persistence_threshold, 0, most_elements);
  visit("inner_group", sharding.inner_group, 0, most_ranks);
  visit("secondary_shard", sharding.secondary_shard);
  visit("weight_bits", sharding.weight_bits, 0, most_bits);
  visit("gradient_bits", sharding.gradient_bits, 0, most_bits);
}

template <class O, class Visit>
void each_offload_field(O& offload, Visit&& visit) {
  visit("offload_optimizer", offload.optimizer);
  visit("offload_ratio", offload.ratio, 0, 1);
  visit("offload_tile", offload.tile, 0, most_elements);
  visit("offload_parameters", offload.parameters);
  visit("offload_prefetch", offload.prefetch, 0, most_ranks);
  visit("sub_group", offload.sub_group, 0, most_elements);
  visit("offload_checkpoints", offload.checkpoints);
}

// All but the execution, which is an object of its own.
template <class P, class Visit>
void each_plan_field(P& plan, Visit&& visit) {
  visit("tp", plan.tp, 1, most_ranks);
  visit("pp", plan.pp, 1, most_ranks);
  visit("dp", plan.dp, 1, most_ranks);
  visit("cp", plan.cp, 1, most_ranks);
  visit("cp_type", plan.cp_type);
  visit("domino_slices", plan.domino_slices, 1, most_tokens);
  visit("domino_columns", plan.domino_columns, 1, most_tokens);
  visit("domino", plan.domino);
  visit("tp_overlap", plan.tp_overlap);
  visit("tp_bits", plan.tp_bits, 0, most_bits);
  visit("chunks", plan.chunks, 1, most_ranks);
  visit("micro_batch_group", plan.micro_batch_group, 0, most_ranks);
  visit("layout", plan.layout, 0, most_ranks);
  visit("sequence_parallel", plan.sequence_parallel);
  visit("zero_stage", plan.zero_stage, 0, 3);
  visit("zero_group", plan.zero_group, 0, most_ranks);
  each_sharding_field(plan.sharding, visit);
  each_offload_field(plan.offload, visit);
  visit("schedule", plan.schedule);
  visit("recompute", plan.recompute);
  visit("recompute_layers", plan.recompute_layers, -1, most_ranks);
  visit("recompute_unused", plan.recompute_unused);
  visit("sequence_length", plan.sequence_length, 1, most_tokens);
  visit("micro_batch", plan.micro_batch, 1, most_tokens);
  visit("global_batch", plan.global_batch, 1, most_tokens);
  visit("parameter_dtype", plan.parameter_dtype);
  visit("gradient_dtype", plan.gradient_dtype);
  visit("reduction_dtype", plan.reduction_dtype);
  visit("bucket_elements", plan.bucket_elements, 0, most_elements);
  visit("loss_chunks", plan.loss_chunks, 1, most_tokens);
  visit("gradient_clip", plan.gradient_clip, 0, std::numeric_limits<double>::max());
  visit("attention", plan.attention);
  visit("p2p", plan.p2p);
}

} // namespace foreplan

#include "tests/proof/plans.hpp"

namespace foreplan {
namespace {

Model small_llama(int layers) {
  Model model;
  model.name = "llama";
  model.layers = layers;
  model.hidden = 16;
  model.heads = 4;
  model.kv_heads = 4;
  model.head_size = 4;
  model.ffn = 24;
  model.vocabulary = 32;
  model.max_positions = 8;
  return model;
}

// As published: tied embeddings, dropout, learned positions, biases.
Model small_gpt(int layers) {
  Model model = small_llama(layers);
  model.name = "gpt";
  model.norm = NormKind::layer_norm;
  model.activation = Activation::gelu;
  model.positions = Positions::learned;
  model.biases = true;
  model.tied_embeddings = true;
  model.dropout = true;
  return model;
}

// Four micro-batches of one sequence of 8 tokens; clipping active, so that a wrong norm shows.
Plan base(int tp, int pp, int dp) {
  Plan plan;
  plan.tp = tp;
  plan.pp = pp;
  plan.dp = dp;
  plan.sequence_length = 8;
  plan.global_batch = 4 * dp;
  plan.bucket_elements = 1500; // several buckets
  plan.gradient_clip = 0.1;
  return plan;
}

Plan interleaved(Plan plan, int chunks) {
  plan.schedule = Schedule::interleaved;
  plan.chunks = chunks;
  plan.p2p = P2p::overlapped;
  return plan;
}

// Schedules that split the backward.
Plan split(Plan plan, Schedule schedule) {
  plan.schedule = schedule;
  plan.chunks = is_v_shaped(schedule) ? 2 : 1;
  plan.p2p = P2p::overlapped;
  return plan;
}

Plan context_parallel(Plan plan, int cp, ContextParallel type) {
  plan.cp = cp;
  plan.cp_type = type;
  return plan;
}

template <class Change>
Plan with(Plan plan, Change change) {
  change(plan);
  return plan;
}

} // namespace

std::vector<ProofCase> proof_cases() {
  auto unfused = [](Plan& plan) { plan.attention = Attention::unfused; };
  auto sequence_parallel = [](Plan& plan) { plan.sequence_parallel = true; };
  return {
      {"gpt, one device", small_gpt(2), with(base(1, 1, 1), unfused)},
      {"llama, dp 2", small_llama(2), base(1, 1, 2)},
      {"gpt, dp 2, bf16 gradients, fp32 reduction, one bucket", small_gpt(2),
       with(base(1, 1, 2),
            [](Plan& plan) {
              plan.gradient_dtype = DType::bf16;
              plan.bucket_elements = 0;
            })},
      {"llama, dp 2 zero 1, bf16 reduction", small_llama(2),
       with(base(1, 1, 2),
            [](Plan& plan) {
              plan.zero_stage = 1;
              plan.reduction_dtype = DType::bf16;
            })},
      {"llama, dp 2 zero 1, optimizer on the host in tiles", small_llama(2),
       with(base(1, 1, 2),
            [](Plan& plan) {
              plan.zero_stage = 1;
              plan.offload.optimizer = MemoryTier::host;
              plan.offload.tile = 400;
            })},
      {"gpt, tp 2 sp, 0.4 of the optimizer on the host", small_gpt(2),
       with(base(2, 1, 1),
            [&](Plan& plan) {
              sequence_parallel(plan);
              plan.offload.optimizer = MemoryTier::host;
              plan.offload.ratio = 0.4;
            })},
      {"llama, dp 2 zero 2, gradients and optimizer on disk in sub-groups", small_llama(2),
       with(base(1, 1, 2),
            [](Plan& plan) {
              plan.zero_stage = 2;
              plan.offload.optimizer = MemoryTier::disk;
              plan.offload.sub_group = 300;
            })},
      {"llama, dp 2 zero 3, parameters and optimizer on the host", small_llama(2),
       with(base(1, 1, 2),
            [](Plan& plan) {
              plan.zero_stage = 3;
              plan.offload.optimizer = plan.offload.parameters = MemoryTier::host;
            })},
      {"gpt, dp 2 zero 3, parameters and optimizer on disk, checkpoints on the host", small_gpt(3),
       with(base(1, 1, 2),
            [](Plan& plan) {
              plan.zero_stage = 3;
              plan.recompute = Recompute::full;
              plan.offload.optimizer = plan.offload.parameters = MemoryTier::disk;
              plan.offload.checkpoints = true;
            })},
      {"llama, pp 2 1f1b, checkpoints on the host", small_llama(4),
       with(base(1, 2, 1),
            [](Plan& plan) {
              plan.recompute = Recompute::full;
              plan.offload.checkpoints = true;
            })},
      {"llama, dp 2 zero 2, bf16 reduction", small_llama(2),
       with(base(1, 1, 2),
            [](Plan& plan) {
              plan.zero_stage = 2;
              plan.reduction_dtype = DType::bf16;
            })},
      {"gpt, dp 2 zero 3, full recompute, small parameters whole", small_gpt(2),
       with(base(1, 1, 2),
            [](Plan& plan) {
              plan.zero_stage = 3;
              plan.recompute = Recompute::full;
              plan.sharding.persistence_threshold = 20;
            })},
      {"gpt, tp 2 sp, pp 2 1f1b, dp 2 zero 3, kept until the backward", small_gpt(2),
       with(base(2, 2, 2),
            [&](Plan& plan) {
              sequence_parallel(plan);
              plan.zero_stage = 3;
              plan.sharding.reshard = Reshard::after_backward;
            })},
      {"llama, pp 2 1f1b, dp 2 zero 3, gathered and reduced once", small_llama(2),
       with(base(1, 2, 2),
            [](Plan& plan) {
              plan.zero_stage = 3;
              plan.sharding.reshard = Reshard::after_step;
              plan.sharding.reduce_once = true;
            })},
      {"llama, dp 4 zero 3 in groups of 2 (HSDP)", small_llama(2),
       with(base(1, 1, 4),
            [](Plan& plan) {
              plan.zero_stage = 3;
              plan.zero_group = 2;
            })},
      {"gpt, dp 4 zero 2 in groups of 2, replicas once (MiCS), bf16 gradients", small_gpt(2),
       with(base(1, 1, 4),
            [](Plan& plan) {
              plan.zero_stage = 2;
              plan.zero_group = 2;
              plan.gradient_dtype = DType::bf16;
              plan.sharding.reduce_replicas_once = true;
            })},
      {"llama, dp 4 zero 3, inner groups of 2, hpZ", small_llama(2),
       with(base(1, 1, 4),
            [](Plan& plan) {
              plan.zero_stage = 3;
              plan.sharding.inner_group = 2;
              plan.sharding.secondary_shard = true;
            })},
      {"gpt, dp 4 zero 3, qwZ", small_gpt(2),
       with(base(1, 1, 4),
            [](Plan& plan) {
              plan.zero_stage = 3;
              plan.sharding.weight_bits = 8;
            })},
      {"llama, dp 4 zero 2, inner groups of 2, qgZ", small_llama(2),
       with(base(1, 1, 4),
            [](Plan& plan) {
              plan.zero_stage = 2;
              plan.sharding.inner_group = 2;
              plan.sharding.gradient_bits = 4;
            })},
      {"llama, tp 2 sp, dp 4 zero 3, inner groups of 2, hpZ, qwZ, qgZ", small_llama(2),
       with(base(2, 1, 4),
            [&](Plan& plan) {
              sequence_parallel(plan);
              plan.zero_stage = 3;
              plan.sharding.inner_group = 2;
              plan.sharding.secondary_shard = true;
              plan.sharding.weight_bits = 8;
              plan.sharding.gradient_bits = 8;
            })},
      {"llama, tp 2, sums over tp int8, full recompute of the first block", small_llama(2),
       with(base(2, 1, 1),
            [](Plan& plan) {
              plan.tp_bits = 8;
              plan.recompute = Recompute::full;
              plan.recompute_layers = 1;
            })},
      {"gpt, tp 2 sp, dp 2, sums over tp int8", small_gpt(2),
       with(base(2, 1, 2),
            [&](Plan& plan) {
              sequence_parallel(plan);
              plan.tp_bits = 8;
            })},
      {"llama, dp 4 zero 1 in groups of 2", small_llama(2),
       with(base(1, 1, 4),
            [](Plan& plan) {
              plan.zero_stage = 1;
              plan.zero_group = 2;
            })},
      {"gpt, tp 2, unfused, selective recompute", small_gpt(2),
       with(base(2, 1, 1),
            [&](Plan& plan) {
              unfused(plan);
              plan.recompute = Recompute::selective;
            })},
      {"llama, tp 4 sp, full recompute of the first block", small_llama(2),
       with(base(4, 1, 1),
            [&](Plan& plan) {
              sequence_parallel(plan);
              plan.recompute = Recompute::full;
              plan.recompute_layers = 1;
            })},
      {"gpt, tp 2 sp, dp 2 zero 1", small_gpt(2),
       with(base(2, 1, 2),
            [&](Plan& plan) {
              sequence_parallel(plan);
              plan.zero_stage = 1;
            })},
      {"llama, pp 4 gpipe", small_llama(4), with(base(1, 4, 1), [](Plan& plan) { plan.schedule = Schedule::gpipe; })},
      {"gpt, pp 3 1f1b, dp 2, overlapped p2p", small_gpt(3),
       with(base(1, 3, 2), [](Plan& plan) { plan.p2p = P2p::overlapped; })},
      {"llama, pp 2 interleaved 2, dp 2 zero 1", small_llama(4),
       with(interleaved(base(1, 2, 2), 2), [](Plan& plan) { plan.zero_stage = 1; })},
      {"gpt, pp 2 interleaved 2, tp 2 sp, full recompute", small_gpt(4),
       with(interleaved(base(2, 2, 1), 2),
            [&](Plan& plan) {
              sequence_parallel(plan);
              plan.recompute = Recompute::full;
            })},
      {"gpt, tp 2, full recompute to the end, as Megatron-LM", small_gpt(2),
       with(base(2, 1, 1),
            [](Plan& plan) {
              plan.recompute = Recompute::full;
              plan.recompute_unused = true;
            })},
      {"gpt, tp 2 sp, pp 2 1f1b, dp 2 zero 1, unfused, selective recompute, bf16 reduction", small_gpt(4),
       with(base(2, 2, 2),
            [&](Plan& plan) {
              unfused(plan);
              sequence_parallel(plan);
              plan.zero_stage = 1;
              plan.recompute = Recompute::selective;
              plan.reduction_dtype = DType::bf16;
            })},
      {"llama, tp 2, pp 2 gpipe, dp 2, overlapped p2p, bf16 gradients", small_llama(2),
       with(base(2, 2, 2),
            [](Plan& plan) {
              plan.schedule = Schedule::gpipe;
              plan.p2p = P2p::overlapped;
              plan.gradient_dtype = DType::bf16;
            })},
      {"llama, tp 2 sp, pp 3 1f1b, full recompute of the first block", small_llama(4),
       with(base(2, 3, 1),
            [&](Plan& plan) {
              sequence_parallel(plan);
              plan.recompute = Recompute::full;
              plan.recompute_layers = 1;
            })},
      {"gpt, pp 3 zb-h1, dp 2 zero 1", small_gpt(4),
       with(split(base(1, 3, 2), Schedule::zb_h1), [](Plan& plan) { plan.zero_stage = 1; })},
      {"llama, pp 2 zb-h2, tp 2 sp, full recompute of the first block", small_llama(4),
       with(split(base(2, 2, 1), Schedule::zb_h2),
            [&](Plan& plan) {
              sequence_parallel(plan);
              plan.recompute = Recompute::full;
              plan.recompute_layers = 1;
            })},
      {"gpt, pp 3 zb-v, tp 2, bf16 gradients", small_gpt(6),
       with(split(base(2, 3, 1), Schedule::zb_v), [](Plan& plan) { plan.gradient_dtype = DType::bf16; })},
      {"llama, pp 2 v-half, dp 2 zero 1, unfused, selective recompute", small_llama(4),
       with(split(base(1, 2, 2), Schedule::v_half),
            [&](Plan& plan) {
              unfused(plan);
              plan.zero_stage = 1;
              plan.recompute = Recompute::selective;
            })},
      {"gpt, pp 4 v-min, tp 2 sp", small_gpt(6), with(split(base(2, 4, 1), Schedule::v_min), sequence_parallel)},
      {"gpt, pp 2 dualpipe-v, tp 2 sp, dp 2 zero 1, full recompute", small_gpt(4),
       with(split(base(2, 2, 2), Schedule::dualpipe_v),
            [&](Plan& plan) {
              sequence_parallel(plan);
              plan.zero_stage = 1;
              plan.recompute = Recompute::full;
            })},
      {"llama, pp 2 interleaved 2 in groups of 4, layout 1 2 1 0", small_llama(4),
       with(interleaved(base(1, 2, 1), 2),
            [](Plan& plan) {
              plan.micro_batch_group = 4;
              plan.layout = {1, 2, 1, 0};
            })},
      {"llama, cp 2 all_gather, tp 2 sp, zero 1, full recompute of the first block", small_llama(2),
       with(context_parallel(base(2, 1, 1), 2, ContextParallel::all_gather),
            [&](Plan& plan) {
              sequence_parallel(plan);
              plan.zero_stage = 1;
              plan.recompute = Recompute::full;
              plan.recompute_layers = 1;
            })},
      {"gpt, cp 2 all_to_all, tp 2, pp 2, selective recompute", small_gpt(2),
       with(context_parallel(base(2, 2, 1), 2, ContextParallel::all_to_all),
            [](Plan& plan) { plan.recompute = Recompute::selective; })},
      {"llama, cp 4 ring, dp 2 zero 1", small_llama(2),
       with(context_parallel(base(1, 1, 2), 4, ContextParallel::ring), [](Plan& plan) { plan.zero_stage = 1; })},
      {"gpt, tp 2 sp, pp 2 1f1b, dp 2 zero 3, loss in 4 chunks", small_gpt(2),
       with(base(2, 2, 2),
            [&](Plan& plan) {
              sequence_parallel(plan);
              plan.zero_stage = 3;
              plan.loss_chunks = 4;
            })},
      {"llama, tp 2, pp 2 zb-h1, loss in 2 chunks, accumulated apart", small_llama(2),
       with(split(base(2, 2, 1), Schedule::zb_h1),
            [](Plan& plan) {
              plan.loss_chunks = 2;
              plan.execution.fused_accumulation = false;
            })},
      {"gpt, tp 2, Domino 2, dp 2", small_gpt(2),
       with(base(2, 1, 2),
            [](Plan& plan) {
              plan.micro_batch = 2;
              plan.domino_slices = 2;
            })},
      {"gpt, tp 2, Domino 2 inter-layer, dp 2 zero 2, full recompute of the first block", small_gpt(3),
       with(base(2, 1, 2),
            [](Plan& plan) {
              plan.micro_batch = 2;
              plan.domino_slices = 2;
              plan.domino = Domino::inter_layer;
              plan.zero_stage = 2;
              plan.recompute = Recompute::full;
              plan.recompute_layers = 1;
            })},
      {"llama, tp 4, Domino 2 intra-layer, selective recompute", small_llama(2),
       with(base(4, 1, 1),
            [&](Plan& plan) {
              unfused(plan);
              plan.micro_batch = 2;
              plan.domino_slices = 2;
              plan.domino = Domino::intra_layer;
              plan.recompute = Recompute::selective;
            })},
      {"llama, tp 2, Domino 2 x 2 columns, pp 2 1f1b, zero 1", small_llama(2),
       with(base(2, 2, 2),
            [](Plan& plan) {
              plan.micro_batch = 2;
              plan.domino_slices = 2;
              plan.domino_columns = 2;
              plan.zero_stage = 1;
            })},
      {"gpt, tp 2 sp overlapped, dp 2 zero 3, full recompute", small_gpt(2),
       with(base(2, 1, 2),
            [&](Plan& plan) {
              sequence_parallel(plan);
              plan.tp_overlap = true;
              plan.zero_stage = 3;
              plan.recompute = Recompute::full;
            })},
      {"llama, tp 4 sp overlapped, pp 2 1f1b", small_llama(2),
       with(base(4, 2, 1),
            [&](Plan& plan) {
              sequence_parallel(plan);
              plan.tp_overlap = true;
            })},
  };
}

} // namespace foreplan

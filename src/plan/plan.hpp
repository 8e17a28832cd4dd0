// A plan: how one training step of a model is spread over ranks. It knows ranks, never links.
#pragma once

#include "model/model.hpp"
#include "units/ids.hpp"
#include "units/quantity.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace foreplan {

// Which memory of a rank: its accelerator's, its share of the node's, or of the node's disks.
enum class MemoryTier : std::uint8_t { device, host, disk };
inline constexpr int memory_tier_count = 3;

enum class Schedule {
  gpipe,
  one_f_one_b,
  interleaved,
  // The rest split the backward into input gradients (B) and weight gradients (W).
  zb_h1,
  zb_h2,
  // Two chunks a stage in the shape of a V: stage i holds the i-th and the i-th last part of the model.
  zb_v,
  v_half,
  v_min,
  dualpipe_v
};
inline constexpr int schedule_count = 9;
enum class Recompute { none, selective, full };
enum class DType : std::uint8_t { bf16, fp16, fp32, int32, uint8 };
inline constexpr int dtype_count = 5;
enum class Attention { fused, unfused }; // flash attention, or scores, softmax and context as kernels of their own
// How the ranks of a context-parallel group, which share out the tokens of each sequence, attend to each other's keys.
enum class ContextParallel {
  all_gather, // keys and values of all ranks are gathered (Llama 3)
  all_to_all, // tokens are exchanged for heads around attention (Ulysses)
  ring        // blocks of keys and values are passed round; partial results are merged
};
enum class P2p {
  synchronous,
  overlapped
}; // the next slot waits for a send at once, or only before its buffer is reused

// Which blocks a stage holds.
//   even        as many each; embedding and head count as one layer each where only then it divides (Megatron)
//   cost_share  a stage is closed when its parameters in products reach its share of the model's, the head's included;
//               the head stands on the last stage (nanotron)
enum class LayerPlacement { even, cost_share };

// Mechanisms of a trainer that are not of the strategy: resolved from a framework profile (plan/framework.hpp).
struct Execution {
  Seconds issue;                  // host time to issue one op; 0: the hardware profile's
  bool fused_accumulation = true; // products of weight gradients add into the gradients; else a kernel of its own does
  bool async_tensor_parallel = true; // sums of input gradients over tp run under the weight gradient's product
  LayerPlacement layer_placement = LayerPlacement::even;
  // Eager: by PyTorch's own kernels, a pass (and often a copy) for each function.
  bool eager_activations = false; // gated activations, and the sums of gradients where a residual branches off
  bool eager_norms = false;       // root mean square norms, from the cast to fp32 on
  bool eager_rotary = false;      // rotary positions, as products in fp32
  bool eager_layout = false;      // the way of queries, keys and values into attention, and of its output back
  bool eager_loss = false;
  bool broadcast_parameters = false; // ZeRO 1: every rank broadcasts what it owns, one after the other
  int gradient_launches = 0; // kernels that the host issues for each parameter's gradient before the update: checks
                             // and norms, one parameter after the other
  bool portable_attention = false; // fused attention without the instructions of newer chips (FlashAttention-2)
  bool triton_attention = false;   // fused attention by the Triton kernel of 2022 (flash_attn_triton.py)
  // Split backwards: the gradients' norm is checked after the optimizer, so that no stage waits for the others at the end
  // of a step (Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 4).
  bool post_validation = false;
  friend bool operator==(Execution const&, Execution const&) = default;
};

// ZeRO-3: when a rank gives up the other ranks' shards of the parameters that it has gathered.
enum class Reshard {
  after_use,      // of a layer: gathered for the forward and again for the backward (FULL_SHARD)
  after_backward, // kept from the forward to the backward (SHARD_GRAD_OP; fully_shard(reshard_after_forward=False))
  after_step      // gathered once (torchtitan with a pipeline)
};

// How ZeRO stages 2 and 3 share out gradients and parameters. Elements are of parameters.
struct Sharding {
  Reshard reshard = Reshard::after_use;
  // Gradients of all micro-batches add up whole on every rank and are reduced in the last one (FSDP's no_sync).
  bool reduce_once = false;
  // The replicas' shards are summed at the end of the step (MiCS's second hop), not in every micro-batch (HSDP).
  bool reduce_replicas_once = false;
  // Layers ahead of the running one whose parameters are gathered; and further ones, as long as all that are ahead have
  // no more elements than this (DeepSpeed's stage3_prefetch_bucket_size).
  int prefetch = 1;
  std::int64_t prefetch_elements = 0;
  std::int64_t reuse_distance = 0;        // kept if fewer are used until the next use (stage3_max_reuse_distance)
  std::int64_t max_live = 0;              // no more are gathered ahead (stage3_max_live_parameters); 0: no limit
  std::int64_t persistence_threshold = 0; // parameters of no more are not cut (stage3_param_persistence_threshold)
  // ZeRO++ (arXiv 2306.10209). Bits on the wire, 8 or 4; 0: not quantized.
  int inner_group = 0; // data-parallel ranks near each other (a node): hpZ's shards, qgZ's first hop; 0: no such groups
  bool secondary_shard = false; // hpZ: the backward gathers within the inner group, from shards kept by the forward
  int weight_bits = 0;          // qwZ: of gathered parameters
  int gradient_bits = 0;        // qgZ: of reduced gradients, in two hops of all-to-all
  friend bool operator==(Sharding const&, Sharding const&) = default;
};

// What lives outside the device (ZeRO-Offload, arXiv 2101.06840; ZeRO-Infinity, arXiv 2104.07857).
struct Offload {
  MemoryTier optimizer = MemoryTier::device; // its states; unless on the device, the host's processors update them
  double ratio = 1;                          // the part of every bucket that is (Twin-Flow); the device keeps the rest
  std::int64_t tile = 0; // elements that the host updates before they are copied up; 0: a bucket at once
  MemoryTier parameters = MemoryTier::device; // ZeRO-3: the ranks' shards, between uses
  int prefetch = 1;                           // layers ahead whose shards come from the host or the disk
  std::int64_t sub_group = 0; // elements of the optimizer's states that are read from disk at once; 0: a bucket
  bool checkpoints = false;   // the inputs of recomputed layers, kept on the host from forward to backward
  friend bool operator==(Offload const&, Offload const&) = default;
};

// How Domino's slices take turns (arXiv 2409.15241; released code: deepspeed/runtime/domino/transformer.py).
enum class Domino {
  paper,       // a slice's communication hides under whatever the other slices compute
  inter_layer, // the released default: a layer's last reduction is waited for within the next layer
  intra_layer  // the released option: every layer waits for its own
};

struct Plan {
  int tp = 1;
  int pp = 1;
  int cp = 1;
  int dp = 1;
  int chunks = 1;            // v: model chunks per stage; > 1 needs an interleaved or V-shaped schedule
  int micro_batch_group = 0; // interleaved: micro-batches that run one chunk in a row; 0: pp
  std::vector<int> layout{}; // blocks of each of the pp * chunks parts, in the model's order; empty: spread evenly
  bool sequence_parallel = false;
  int zero_stage = 0; // 0 to 3
  int zero_group = 0; // data-parallel ranks that share out the model states, the others hold copies (HSDP); 0: all
  Sharding sharding;
  Offload offload;
  Schedule schedule = Schedule::one_f_one_b;
  Recompute recompute = Recompute::none;
  int recompute_layers = -1;     // the first n blocks of every chunk are recomputed; -1: all
  bool recompute_unused = false; // also the ops whose results the backward does not need (Megatron-LM does)

  std::int64_t sequence_length = 0; // s, tokens
  std::int64_t micro_batch = 1;     // b, sequences
  std::int64_t global_batch = 0;    // sequences of one step over all data-parallel ranks

  DType parameter_dtype = DType::bf16;
  DType gradient_dtype = DType::fp32; // of the accumulated gradients; where they accumulate in a rank's shard (ZeRO 2),
                                      // those of a layer are in parameter_dtype
  DType reduction_dtype = DType::fp32; // on the wire of the data-parallel reduction
  std::int64_t bucket_elements = 0;    // of a gradient bucket; 0: one bucket a chunk
  int loss_chunks = 1;                 // row pieces of a micro-batch, whose logits live one after the other
  double gradient_clip = 1.0;          // global norm at which gradients are scaled down; 0: never

  Attention attention = Attention::fused;
  P2p p2p = P2p::synchronous;
  Execution execution;
  ContextParallel cp_type = ContextParallel::all_gather;
  int domino_slices = 1;  // q: row slices of a micro-batch, whose tensor-parallel communication hides under each other
  int domino_columns = 1; // column slices of a block's second weights, reduced one under the product of the next
  Domino domino = Domino::paper;
  bool tp_overlap = false; // products in chunks that overlap their gather or reduction over tp (user buffers, async TP)
  int tp_bits = 0;         // on the wire of reductions over tp, 8 or 4; 0: not quantized

  [[nodiscard]] int world_size() const { return tp * cp * pp * dp; }
  // Degree of the outer axis of the data-parallel ranks: copies (HSDP), or nodes (ZeRO++).
  [[nodiscard]] int replicas() const {
    int const inner = zero_group > 0 ? zero_group : sharding.inner_group;
    return inner > 0 ? dp / inner : 1;
  }
  [[nodiscard]] std::int64_t micro_batches() const { return global_batch / (micro_batch * dp); } // m, of one rank
  [[nodiscard]] std::int64_t tokens() const {
    return sequence_length / cp * micro_batch;
  } // T, of one micro-batch on a rank
  friend bool operator==(Plan const&, Plan const&) = default;
};

std::int64_t size_of(DType dtype); // bytes of one element

std::string_view to_string(MemoryTier tier);
std::string_view to_string(Domino form);
std::string_view to_string(Schedule schedule);
bool splits_backward(Schedule schedule);
bool is_v_shaped(Schedule schedule);
bool has_chunks(Schedule schedule); // more than one a stage
// Into how many slices of columns a block's second products are cut.
int column_slices(Plan const& plan);
std::string_view to_string(Recompute recompute);
std::string_view to_string(DType dtype);
std::string_view to_string(Attention attention);
std::string_view to_string(P2p p2p);
std::string_view to_string(LayerPlacement placement);
std::string_view to_string(Reshard reshard);
std::string_view to_string(ContextParallel type);

// Of Plan::layout: "19,20*6,21", what stands side by side as one.
std::string layout_text(std::vector<int> const& layout);

// "tp 8, pp 4, dp 2, ..." in one line, for tables and errors.
std::string describe(Plan const& plan);

} // namespace foreplan

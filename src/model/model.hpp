// A transformer's dimensions, as a value. Read from models/*.json, or from a Hugging Face config.json, by read_model().
#pragma once

#include "units/quantity.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace foreplan {

enum class NormKind { layer_norm, rms_norm };
enum class Activation { gelu, swiglu, relu, geglu }; // swiglu and geglu are gated: see is_gated()
enum class Positions { learned, rotary, alibi };
enum class NormPlacement { before, after, both }; // of a block's two branches: the branch's input, its output, or both
// Norms of queries and keys: none; one weight vector of head_size each, for all heads (Qwen3); one over all heads (OLMo-2).
enum class QueryKeyNorm { none, per_head, all_heads };

// Mixture of experts: the MLP of a block is one of `count` for each token, chosen `per_token` times by a router.
struct Experts {
  int count = 0;               // E
  int per_token = 0;           // k
  std::int64_t ffn = 0;        // width of one expert
  std::int64_t shared_ffn = 0; // width of the MLP that every token passes besides; 0: none
  int first_dense_layers = 0;  // blocks with the plain MLP of width Model::ffn, before those with experts
  bool router_bias = false;    // one number an expert (DeepSeek-V3's load balancing, gpt-oss)
  friend bool operator==(Experts const&, Experts const&) = default;
};

// Multi-head latent attention (DeepSeek-V2, V3): queries, and keys with values, pass through a narrow normed vector.
struct LatentAttention {
  std::int64_t query_rank = 0; // 0: queries are projected from hidden at once
  std::int64_t kv_rank = 0;
  std::int64_t head_size = 0;        // of queries and keys, the part without positions
  std::int64_t rotary_head_size = 0; // of queries and keys, the rotated part; keys share one among all heads
  std::int64_t value_head_size = 0;
  friend bool operator==(LatentAttention const&, LatentAttention const&) = default;
};

struct SlidingWindow {
  std::int64_t tokens = 0; // a token sees as many, itself included
  int layers = 0;          // blocks that have the window; the others see the whole sequence
  friend bool operator==(SlidingWindow const&, SlidingWindow const&) = default;
};

struct Model {
  std::string name;
  int layers = 0;                 // transformer blocks
  std::int64_t hidden = 0;        // h
  std::int64_t heads = 0;         // a: query heads
  std::int64_t kv_heads = 0;      // g: key and value heads, a divisor of heads
  std::int64_t head_size = 0;     // d; heads * head_size need not equal hidden
  std::int64_t ffn = 0;           // f: width of the MLP (of each of gate and up when gated)
  std::int64_t vocabulary = 0;    // V, padded as it is stored
  std::int64_t max_positions = 0; // rows of a learned position table; the longest sequence
  NormKind norm = NormKind::rms_norm;
  Activation activation = Activation::swiglu;
  Positions positions = Positions::rotary;
  bool biases = false;          // on every linear but the head
  bool tied_embeddings = false; // the head uses the embedding's matrix
  bool dropout = false;         // dropout ops and their masks exist (GPT as published)

  bool qkv_biases = false; // on the projection to queries, keys and values (Qwen2); implied by `biases`
  NormPlacement norm_placement = NormPlacement::before;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  bool embedding_norm = false;    // a norm between embedding and first block (BLOOM)
  bool parallel_residual = false; // attention and MLP read the same input, their outputs are added (GPT-NeoX, Falcon)
  bool attention_sinks = false;   // one number a head in each softmax (gpt-oss)
  std::optional<SlidingWindow> sliding_window;
  std::optional<LatentAttention> latent_attention; // then kv_heads and head_size say nothing
  std::optional<Experts> experts;
};

[[nodiscard]] bool is_gated(Activation activation);

// Parameters by part, each tied matrix counted once: with the embedding (algorithms.md 1.1).
struct ParameterCounts {
  std::int64_t embedding = 0; // table, and learned positions
  std::int64_t attention = 0; // linears with their biases, sinks
  std::int64_t mlp = 0;       // plain MLPs
  std::int64_t experts = 0;   // experts, shared experts and routers
  std::int64_t norms = 0;
  std::int64_t head = 0; // 0 when tied
  [[nodiscard]] std::int64_t total() const { return embedding + attention + mlp + experts + norms + head; }
};

ParameterCounts count_parameters(Model const& model);
// Those that one token uses: of the experts the `per_token` chosen ones, the shared ones and the router.
ParameterCounts count_active_parameters(Model const& model);

std::int64_t parameter_count(Model const& model); // count_parameters().total()

// Model flops of one token's training step: 6 * (active parameters in matrix products: blocks, router and head, without the
// input embedding, norms and biases) + attention, which is 6 * layers * heads * head_size * sequence_length when causal;
// with latent attention 2 * head_size is the sum of the sizes of keys and values; in layers with a window w below the
// sequence length s, s becomes w (2 - w / s). Recomputed work is not counted (algorithms.md 1.1).
Flops training_flops_per_token(Model const& model, std::int64_t sequence_length);

} // namespace foreplan

// A transformer's dimensions, as a value. Read from models/*.json by read_model().
#pragma once

#include "units/quantity.hpp"

#include <cstdint>
#include <string>

namespace foreplan {

enum class NormKind { layer_norm, rms_norm };
enum class Activation { gelu, swiglu };
enum class Positions { learned, rotary };

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
  bool biases = false;            // on every linear but the head
  bool tied_embeddings = false;   // the head uses the embedding's matrix
  bool dropout = false;           // dropout ops and their masks exist (GPT as published)
};

// Parameters of the whole model, each tied matrix counted once (algorithms.md 1.1).
std::int64_t parameter_count(Model const& model);

// Model flops of one token's training step: 6 * (parameters in matrix products: blocks and head, without the input
// embedding and norms) + 6 * layers * heads * head_size * sequence_length for causal attention. Recomputed work is not
// counted (algorithms.md 1.1).
Flops training_flops_per_token(Model const& model, std::int64_t sequence_length);

} // namespace foreplan

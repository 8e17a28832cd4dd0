// The models of the equivalence tests: as small as every strategy allows.
#pragma once

#include "model/model.hpp"
#include "plan/plan.hpp"

namespace foreplan {

// LayerNorm, GELU, biases, learned positions. Eight heads, so that tp 8 is legal; heads * head size is not hidden.
inline Model small_gpt(int layers = 4) {
  Model model;
  model.name = "small GPT";
  model.layers = layers;
  model.hidden = 16;
  model.heads = model.kv_heads = 8;
  model.head_size = 4;
  model.ffn = 24;
  model.vocabulary = 32;
  model.max_positions = 8;
  model.norm = NormKind::layer_norm;
  model.activation = Activation::gelu;
  model.positions = Positions::learned;
  model.biases = true;
  return model;
}

// RMSNorm, rotary positions, grouped queries, SwiGLU.
inline Model small_llama(int layers = 4) {
  Model model;
  model.name = "small Llama";
  model.layers = layers;
  model.hidden = 16;
  model.heads = 8;
  model.kv_heads = 4;
  model.head_size = 4;
  model.ffn = 24;
  model.vocabulary = 32;
  model.max_positions = 8;
  return model;
}

// The step that every plan must reproduce: 8 sequences of 8 tokens on one device, in one micro-batch.
inline Plan one_device() {
  Plan plan;
  plan.sequence_length = 8;
  plan.global_batch = 8;
  plan.micro_batch = 8;
  plan.gradient_clip = 0.5;
  return plan;
}

} // namespace foreplan

#include "model/model.hpp"

namespace foreplan {
namespace {

std::int64_t norm_parameters(Model const& model) {
  return model.norm == NormKind::layer_norm ? 2 * model.hidden : model.hidden;
}

std::int64_t attention_parameters(Model const& model) {
  std::int64_t qkv = (model.heads + 2 * model.kv_heads) * model.head_size;
  std::int64_t biases = model.biases ? qkv + model.hidden : 0;
  return model.hidden * qkv + model.heads * model.head_size * model.hidden + biases;
}

std::int64_t mlp_parameters(Model const& model) {
  std::int64_t up = model.activation == Activation::swiglu ? 2 * model.ffn : model.ffn; // gate and up
  std::int64_t biases = model.biases ? up + model.hidden : 0;
  return model.hidden * up + model.ffn * model.hidden + biases;
}

} // namespace

std::int64_t parameter_count(Model const& model) {
  std::int64_t block = attention_parameters(model) + mlp_parameters(model) + 2 * norm_parameters(model);
  std::int64_t vocabulary = model.vocabulary * model.hidden * (model.tied_embeddings ? 1 : 2);
  std::int64_t positions = model.positions == Positions::learned ? model.max_positions * model.hidden : 0;
  return model.layers * block + norm_parameters(model) + vocabulary + positions;
}

Flops training_flops_per_token(Model const& model, std::int64_t sequence_length) {
  std::int64_t const attention_width = model.heads * model.head_size;
  std::int64_t const qkv = (model.heads + 2 * model.kv_heads) * model.head_size;
  std::int64_t const up = model.activation == Activation::swiglu ? 2 * model.ffn : model.ffn;
  std::int64_t const block = model.hidden * (qkv + attention_width + up + model.ffn);
  std::int64_t const products = model.layers * block + model.hidden * model.vocabulary;
  return Flops(6.0 * static_cast<double>(products) +
               6.0 * static_cast<double>(model.layers * attention_width * sequence_length));
}

} // namespace foreplan

#include "model/model.hpp"

namespace foreplan {
namespace {

std::int64_t rows_of_one_norm(Model const& model) { return model.norm == NormKind::layer_norm ? 2 : 1; }

// ------------------------------------------------------------------------------------ one block; matrices, then the rest

std::int64_t attention_matrices(Model const& model) {
  if (!model.latent_attention) {
    std::int64_t const qkv = (model.heads + 2 * model.kv_heads) * model.head_size;
    return model.hidden * qkv + model.heads * model.head_size * model.hidden;
  }
  LatentAttention const& latent = *model.latent_attention;
  std::int64_t const queries = model.heads * (latent.head_size + latent.rotary_head_size);
  std::int64_t const keys_and_values = model.heads * (latent.head_size + latent.value_head_size);
  std::int64_t const query = latent.query_rank == 0 ? model.hidden * queries
                                                    : model.hidden * latent.query_rank + latent.query_rank * queries;
  return query + model.hidden * (latent.kv_rank + latent.rotary_head_size) + latent.kv_rank * keys_and_values +
         model.heads * latent.value_head_size * model.hidden;
}

std::int64_t attention_vectors(Model const& model) {
  std::int64_t const qkv_biases = (model.heads + 2 * model.kv_heads) * model.head_size;
  std::int64_t const sinks = model.attention_sinks ? model.heads : 0;
  if (model.biases)
    return qkv_biases + model.hidden + sinks;
  return (model.qkv_biases ? qkv_biases : 0) + sinks;
}

std::int64_t norms_of_attention(Model const& model) {
  if (model.latent_attention)
    return model.latent_attention->query_rank + model.latent_attention->kv_rank;
  switch (model.query_key_norm) {
    case QueryKeyNorm::none: return 0;
    case QueryKeyNorm::per_head: return 2 * model.head_size * rows_of_one_norm(model);
    case QueryKeyNorm::all_heads: return (model.heads + model.kv_heads) * model.head_size * rows_of_one_norm(model);
  }
  return 0;
}

std::int64_t norms_of_block(Model const& model) {
  std::int64_t const count = model.norm_placement == NormPlacement::both ? 4 : 2;
  return count * rows_of_one_norm(model) * model.hidden + norms_of_attention(model);
}

std::int64_t mlp_matrices(Model const& model, std::int64_t ffn) {
  return (is_gated(model.activation) ? 3 : 2) * model.hidden * ffn;
}

std::int64_t mlp_biases(Model const& model, std::int64_t ffn) {
  return model.biases ? (is_gated(model.activation) ? 2 * ffn : ffn) + model.hidden : 0;
}

// Of a block with experts, `count` of which are taken.
std::int64_t expert_matrices(Model const& model, int count) {
  Experts const& experts = *model.experts;
  return count * mlp_matrices(model, experts.ffn) + mlp_matrices(model, experts.shared_ffn) +
         model.hidden * experts.count;
}

std::int64_t expert_vectors(Model const& model, int count) {
  Experts const& experts = *model.experts;
  std::int64_t const shared = experts.shared_ffn > 0 ? mlp_biases(model, experts.shared_ffn) : 0;
  return count * mlp_biases(model, experts.ffn) + shared + (experts.router_bias ? experts.count : 0);
}

// ----------------------------------------------------------------------------------------------------- the whole model

std::int64_t dense_layers(Model const& model) {
  return model.experts ? model.experts->first_dense_layers : model.layers;
}

ParameterCounts count(Model const& model, int experts) {
  std::int64_t const dense = dense_layers(model);
  ParameterCounts counts;
  counts.embedding = model.vocabulary * model.hidden;
  if (model.positions == Positions::learned)
    counts.embedding += model.max_positions * model.hidden;
  counts.attention = model.layers * (attention_matrices(model) + attention_vectors(model));
  counts.mlp = dense == 0 ? 0 : dense * (mlp_matrices(model, model.ffn) + mlp_biases(model, model.ffn));
  if (model.experts)
    counts.experts = (model.layers - dense) * (expert_matrices(model, experts) + expert_vectors(model, experts));
  std::int64_t const single_norms = model.embedding_norm ? 2 : 1; // and the final one
  counts.norms = model.layers * norms_of_block(model) + single_norms * rows_of_one_norm(model) * model.hidden;
  counts.head = model.tied_embeddings ? 0 : model.vocabulary * model.hidden;
  return counts;
}

std::int64_t matrices_of_a_token(Model const& model) {
  std::int64_t const dense = dense_layers(model);
  std::int64_t const experts = model.experts ? (model.layers - dense) * expert_matrices(model, model.experts->per_token)
                                             : 0;
  return model.layers * attention_matrices(model) + dense * mlp_matrices(model, model.ffn) + experts +
         model.hidden * model.vocabulary;
}

// Twice the sum over blocks of the tokens that a token attends to, on average.
double twice_attended_tokens(Model const& model, std::int64_t sequence_length) {
  double const s = static_cast<double>(sequence_length);
  if (!model.sliding_window || model.sliding_window->tokens >= sequence_length)
    return model.layers * s;
  double const w = static_cast<double>(model.sliding_window->tokens);
  int const windowed = model.sliding_window->layers;
  return (model.layers - windowed) * s + windowed * w * (2 - w / s);
}

double sizes_of_key_and_value(Model const& model) {
  if (!model.latent_attention)
    return 2.0 * static_cast<double>(model.head_size);
  LatentAttention const& latent = *model.latent_attention;
  return static_cast<double>(latent.head_size + latent.rotary_head_size + latent.value_head_size);
}

} // namespace

bool is_gated(Activation activation) { return activation == Activation::swiglu || activation == Activation::geglu; }

ParameterCounts count_parameters(Model const& model) { return count(model, model.experts ? model.experts->count : 0); }

ParameterCounts count_active_parameters(Model const& model) {
  return count(model, model.experts ? model.experts->per_token : 0);
}

std::int64_t parameter_count(Model const& model) { return count_parameters(model).total(); }

Flops training_flops_per_token(Model const& model, std::int64_t sequence_length) {
  double const attention = static_cast<double>(model.heads) * sizes_of_key_and_value(model) *
                           twice_attended_tokens(model, sequence_length);
  return Flops(6.0 * static_cast<double>(matrices_of_a_token(model)) + 3.0 * attention);
}

} // namespace foreplan

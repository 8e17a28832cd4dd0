#include "model/read_model.hpp"

#include "model/dimensions.hpp"
#include "model/hugging_face.hpp"

#include <fmt/format.h>

namespace foreplan {
namespace {

std::int64_t read_head_size(JsonReader const& reader, Model const& model) {
  if (auto given = reader.find("head_size"))
    return read_width(*given);
  if (model.hidden % model.heads != 0)
    reader["heads"].fail(fmt::format("must divide hidden = {}, or head_size be given", model.hidden));
  return model.hidden / model.heads;
}

void read_flag(JsonReader const& reader, std::string_view key, bool& flag) {
  if (auto const value = reader.find(key))
    flag = value->boolean();
}

Experts read_experts(JsonReader const& reader, int layers) {
  reader.expect_keys({"count", "per_token", "ffn", "shared_ffn", "first_dense_layers", "router_bias"});
  Experts experts;
  experts.count = static_cast<int>(read_width(reader["count"]));
  experts.per_token = static_cast<int>(read_width(reader["per_token"]));
  experts.ffn = read_width(reader["ffn"]);
  if (auto const value = reader.find("shared_ffn"))
    experts.shared_ffn = read_width(*value);
  if (auto const value = reader.find("first_dense_layers"))
    experts.first_dense_layers = static_cast<int>(value->integer(0, layers));
  read_flag(reader, "router_bias", experts.router_bias);
  return experts;
}

LatentAttention read_latent_attention(JsonReader const& reader) {
  reader.expect_keys({"query_rank", "kv_rank", "head_size", "rotary_head_size", "value_head_size"});
  LatentAttention latent;
  if (auto const value = reader.find("query_rank"))
    latent.query_rank = read_width(*value);
  latent.kv_rank = read_width(reader["kv_rank"]);
  latent.head_size = read_width(reader["head_size"]);
  latent.rotary_head_size = read_width(reader["rotary_head_size"]);
  latent.value_head_size = read_width(reader["value_head_size"]);
  return latent;
}

SlidingWindow read_sliding_window(JsonReader const& reader, int layers) {
  reader.expect_keys({"tokens", "layers"});
  SlidingWindow window{read_rows(reader["tokens"]), layers};
  if (auto const value = reader.find("layers"))
    window.layers = static_cast<int>(value->integer(1, layers));
  return window;
}

// What only some families have; each key is optional.
void read_variants(JsonReader const& reader, Model& model) {
  read_flag(reader, "qkv_biases", model.qkv_biases);
  read_flag(reader, "embedding_norm", model.embedding_norm);
  read_flag(reader, "parallel_residual", model.parallel_residual);
  read_flag(reader, "attention_sinks", model.attention_sinks);
  if (auto const value = reader.find("norm_placement"))
    model.norm_placement = value->choice<NormPlacement>(
        {{"before", NormPlacement::before}, {"after", NormPlacement::after}, {"both", NormPlacement::both}});
  if (auto const value = reader.find("query_key_norm"))
    model.query_key_norm = value->choice<QueryKeyNorm>(
        {{"none", QueryKeyNorm::none}, {"per_head", QueryKeyNorm::per_head}, {"all_heads", QueryKeyNorm::all_heads}});
  if (auto const value = reader.find("sliding_window"))
    model.sliding_window = read_sliding_window(*value, model.layers);
  if (auto const value = reader.find("latent_attention"))
    model.latent_attention = read_latent_attention(*value);
  if (auto const value = reader.find("experts")) {
    model.experts = read_experts(*value, model.layers);
    check_experts((*value)["count"], model);
  }
}

Model read_own(JsonReader const& reader) {
  reader.expect_keys({"name",
                      "layers",
                      "hidden",
                      "heads",
                      "kv_heads",
                      "head_size",
                      "ffn",
                      "vocabulary",
                      "max_positions",
                      "norm",
                      "activation",
                      "positions",
                      "biases",
                      "tied_embeddings",
                      "dropout",
                      "qkv_biases",
                      "norm_placement",
                      "query_key_norm",
                      "embedding_norm",
                      "parallel_residual",
                      "sliding_window",
                      "latent_attention",
                      "attention_sinks",
                      "experts"});
  Model model;
  model.name = reader["name"].text();
  model.layers = read_layers(reader["layers"]);
  model.hidden = read_width(reader["hidden"]);
  model.heads = read_width(reader["heads"]);
  model.kv_heads = read_kv_heads(reader["kv_heads"], model.heads);
  model.head_size = read_head_size(reader, model);
  model.ffn = read_width(reader["ffn"]);
  model.vocabulary = read_rows(reader["vocabulary"]);
  model.max_positions = read_rows(reader["max_positions"]);
  model.norm = reader["norm"].choice<NormKind>(
      {{"layer_norm", NormKind::layer_norm}, {"rms_norm", NormKind::rms_norm}});
  model.activation = reader["activation"].choice<Activation>({{"gelu", Activation::gelu},
                                                              {"swiglu", Activation::swiglu},
                                                              {"relu", Activation::relu},
                                                              {"geglu", Activation::geglu}});
  model.positions = reader["positions"].choice<Positions>(
      {{"learned", Positions::learned}, {"rotary", Positions::rotary}, {"alibi", Positions::alibi}});
  model.biases = reader["biases"].boolean();
  model.tied_embeddings = reader["tied_embeddings"].boolean();
  model.dropout = reader["dropout"].boolean();
  read_variants(reader, model);
  check_heads(reader["heads"], model);
  return model;
}

} // namespace

Model read_model(std::string const& path) { return read_model(JsonReader::read_file(path, {})); }

Model read_model(JsonReader const& reader) {
  if (is_hugging_face_config(reader))
    return read_hugging_face_config(reader);
  reader.expect_format("foreplan model 1");
  return read_own(reader);
}

} // namespace foreplan

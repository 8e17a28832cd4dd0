#include "model/hugging_face.hpp"

#include "io/suggestion.hpp"
#include "model/dimensions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <vector>

namespace foreplan {
namespace {

using Keys = std::initializer_list<std::string_view>; // names of one thing, in the order of preference

enum class Windows { none, all_layers, every_second, all_but_every_nth, from_max_window_layers };

// What a family of models (a "model_type") has, and the defaults of its configuration class in transformers; 0: none, the
// key must be there.
struct Family {
  std::string_view model_type;
  std::string_view activation = "silu";
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_size = 0; // 0: hidden / heads
  std::int64_t vocabulary = 0;
  std::int64_t max_positions = 0;
  NormKind norm = NormKind::rms_norm;
  Positions positions = Positions::rotary;
  NormPlacement norm_placement = NormPlacement::before;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  Windows windows = Windows::none;
  bool gated = true;
  bool biases = false;
  bool qkv_biases = false;
  bool tied = false;
  bool four_hidden = false; // the MLP's width, where it is not given
  bool embedding_norm = false;
  bool parallel_residual = false;
  bool attention_sinks = false;
  bool experts = false;
  bool latent_attention = false;
  bool router_bias = false;
};

constexpr auto layer_norm = NormKind::layer_norm;
constexpr auto per_head = QueryKeyNorm::per_head;

// Sources: configuration_*.py and modeling_*.py of each family in huggingface/transformers.
constexpr Family families[] = {
    {.model_type = "bloom",
     .activation = "gelu",
     .norm = layer_norm,
     .positions = Positions::alibi,
     .gated = false,
     .biases = true,
     .tied = true,
     .four_hidden = true,
     .embedding_norm = true},
    {.model_type = "deepseek", .experts = true},
    {.model_type = "deepseek_v2", .experts = true, .latent_attention = true},
    {.model_type = "deepseek_v3", .experts = true, .latent_attention = true, .router_bias = true},
    {.model_type = "falcon",
     .activation = "gelu",
     .max_positions = 2048,
     .norm = layer_norm,
     .gated = false,
     .tied = true,
     .four_hidden = true,
     .parallel_residual = true},
    {.model_type = "gemma", .activation = "gelu_pytorch_tanh", .head_size = 256, .tied = true},
    {.model_type = "gemma2",
     .activation = "gelu_pytorch_tanh",
     .head_size = 256,
     .norm_placement = NormPlacement::both,
     .windows = Windows::every_second,
     .tied = true},
    {.model_type = "gemma3",
     .activation = "gelu_pytorch_tanh",
     .heads = 8,
     .kv_heads = 4,
     .head_size = 256,
     .vocabulary = 262208,
     .max_positions = 131072,
     .norm_placement = NormPlacement::both,
     .query_key_norm = per_head,
     .windows = Windows::all_but_every_nth,
     .tied = true},
    {.model_type = "gemma3_text",
     .activation = "gelu_pytorch_tanh",
     .heads = 8,
     .kv_heads = 4,
     .head_size = 256,
     .vocabulary = 262208,
     .max_positions = 131072,
     .norm_placement = NormPlacement::both,
     .query_key_norm = per_head,
     .windows = Windows::all_but_every_nth,
     .tied = true},
    {.model_type = "gpt2",
     .activation = "gelu_new",
     .norm = layer_norm,
     .positions = Positions::learned,
     .gated = false,
     .biases = true,
     .tied = true,
     .four_hidden = true},
    {.model_type = "gpt_neox",
     .activation = "gelu",
     .norm = layer_norm,
     .gated = false,
     .biases = true,
     .parallel_residual = true},
    {.model_type = "gpt_oss",
     .windows = Windows::every_second,
     .biases = true,
     .attention_sinks = true,
     .experts = true,
     .router_bias = true},
    {.model_type = "granite"},
    {.model_type = "kimi_k2", .experts = true, .latent_attention = true, .router_bias = true},
    {.model_type = "llama"},
    {.model_type = "mistral", .kv_heads = 8, .windows = Windows::all_layers},
    {.model_type = "mixtral", .kv_heads = 8, .windows = Windows::all_layers, .experts = true},
    {.model_type = "olmo2", .norm_placement = NormPlacement::after, .query_key_norm = QueryKeyNorm::all_heads},
    {.model_type = "opt",
     .activation = "relu",
     .norm = layer_norm,
     .positions = Positions::learned,
     .gated = false,
     .biases = true,
     .tied = true},
    {.model_type = "phi3", .windows = Windows::all_layers},
    {.model_type = "qwen2", .windows = Windows::from_max_window_layers, .qkv_biases = true},
    {.model_type = "qwen2_moe", .windows = Windows::from_max_window_layers, .qkv_biases = true, .experts = true},
    {.model_type = "qwen3", .head_size = 128, .query_key_norm = per_head, .windows = Windows::from_max_window_layers},
    {.model_type = "qwen3_moe",
     .query_key_norm = per_head,
     .windows = Windows::from_max_window_layers,
     .experts = true},
    {.model_type = "stablelm", .norm = layer_norm},
    {.model_type = "starcoder2",
     .activation = "gelu_pytorch_tanh",
     .norm = layer_norm,
     .windows = Windows::all_layers,
     .gated = false,
     .biases = true,
     .tied = true},
};

// --------------------------------------------------------------------------------------------------------- single keys

// The first of the keys that is there and not null.
std::optional<JsonReader> given(JsonReader const& config, Keys keys) {
  for (std::string_view key : keys)
    if (auto value = config.find(key); value && !value->is_null())
      return value;
  return std::nullopt;
}

JsonReader required(JsonReader const& config, Keys keys) {
  if (auto value = given(config, keys))
    return *value;
  config[*keys.begin()].fail("must be given"); // absent: operator[] says so
}

bool flag(JsonReader const& config, std::string_view key, bool if_absent) {
  auto const value = given(config, {key});
  return value ? value->boolean() : if_absent;
}

// The value, or the family's when there is none and it has one.
template <class Read>
std::int64_t read_or(JsonReader const& config, Keys keys, std::int64_t if_absent, Read read) {
  auto const value = given(config, keys);
  return !value && if_absent > 0 ? if_absent : read(required(config, keys));
}

Family const& family_of(JsonReader const& config, JsonReader const& top) {
  auto const own = given(config, {"model_type"});
  JsonReader const value = own ? *own : required(top, {"model_type"});
  std::string const type = value.text();
  std::vector<std::string_view> known;
  for (Family const& family : families) {
    if (family.model_type == type)
      return family;
    known.push_back(family.model_type);
  }
  value.fail(fmt::format("is a family that Foreplan does not know (write its dimensions as models/*.json); {}",
                         suggestion(type, known)));
}

std::string name_of(JsonReader const& top) {
  if (auto const value = given(top, {"_name_or_path"}); value && !value->is_text(""))
    return value->text();
  std::filesystem::path const path(top.file());
  std::string const stem = path.stem().string();
  return stem == "config" && path.has_parent_path() ? path.parent_path().filename().string() : stem;
}

// ------------------------------------------------------------------------------------------------------------ the parts

std::int64_t read_heads_of_values(JsonReader const& config, Family const& family, Model const& model) {
  if (family.model_type == "falcon" && !flag(config, "new_decoder_architecture", false))
    return flag(config, "multi_query", true) ? 1 : model.heads;
  if (auto const value = given(config, {"num_key_value_heads", "num_kv_heads"}))
    return read_kv_heads(*value, model.heads);
  return family.kv_heads > 0 && model.heads % family.kv_heads == 0 ? family.kv_heads : model.heads;
}

std::int64_t read_head_size(JsonReader const& config, Family const& family, Model const& model) {
  if (auto const value = given(config, {"head_dim"}))
    return read_width(*value);
  if (family.head_size > 0)
    return family.head_size;
  if (model.hidden % model.heads != 0)
    required(config, {"num_attention_heads", "n_head"})
        .fail(fmt::format("must divide hidden_size = {}, or head_dim be given", model.hidden));
  return model.hidden / model.heads;
}

Activation read_activation(JsonReader const& config, Family const& family) {
  auto const value = given(config, {"hidden_activation", "hidden_act", "activation_function"});
  std::string const name = value ? value->text() : std::string(family.activation);
  if (name.starts_with("gelu"))
    return family.gated ? Activation::geglu : Activation::gelu;
  if (name == "silu" && family.gated)
    return Activation::swiglu;
  if (name == "relu" && !family.gated)
    return Activation::relu;
  value->fail(fmt::format("is not an activation of the family {}; valid: {}", family.model_type,
                          family.gated ? "silu, gelu, gelu_new, gelu_pytorch_tanh"
                                       : "gelu, gelu_new, gelu_pytorch_tanh, relu"));
}

void read_biases(JsonReader const& config, Family const& family, Model& model) {
  model.biases = flag(config, "use_bias", flag(config, "bias", family.biases));
  model.qkv_biases = flag(config, "use_qkv_bias", family.qkv_biases);
  bool const mlp = flag(config, "mlp_bias", model.biases);
  bool const attention = flag(config, "attention_bias", model.biases);
  if (family.biases || (!attention && !mlp))
    return;
  if (attention != mlp)
    required(config, {attention ? "attention_bias" : "mlp_bias"})
        .fail("is not supported: biases on all linears of a block, on none, or on queries, keys and values");
  model.biases = true;
}

int windowed_layers(JsonReader const& config, Family const& family, int layers) {
  if (auto const types = given(config, {"layer_types"})) {
    std::vector<JsonReader> const each = types->elements();
    return static_cast<int>(std::count_if(each.begin(), each.end(),
                                          [](JsonReader const& type) { return type.text() == "sliding_attention"; }));
  }
  switch (family.windows) {
    case Windows::none: return 0;
    case Windows::all_layers: return layers;
    case Windows::every_second: return (layers + 1) / 2;
    case Windows::all_but_every_nth: {
      auto const pattern = given(config, {"sliding_window_pattern", "_sliding_window_pattern"});
      return layers - layers / static_cast<int>(pattern ? read_layers(*pattern) : 6);
    }
    case Windows::from_max_window_layers: {
      auto const first = given(config, {"max_window_layers"});
      return layers - static_cast<int>(first ? std::min<std::int64_t>(layers, read_layers(*first)) : layers);
    }
  }
  return 0;
}

std::optional<SlidingWindow> read_sliding_window(JsonReader const& config, Family const& family, int layers) {
  auto const tokens = given(config, {"sliding_window", "sliding_window_size"});
  bool const optional = family.windows == Windows::from_max_window_layers;
  if (!tokens || family.windows == Windows::none || (optional && !flag(config, "use_sliding_window", false)))
    return std::nullopt;
  SlidingWindow const window{read_rows(*tokens), std::min(layers, windowed_layers(config, family, layers))};
  return window.layers > 0 ? std::optional(window) : std::nullopt;
}

LatentAttention read_latent_attention(JsonReader const& config) {
  LatentAttention latent;
  if (auto const rank = given(config, {"q_lora_rank"}))
    latent.query_rank = read_width(*rank);
  latent.kv_rank = read_width(required(config, {"kv_lora_rank"}));
  latent.head_size = read_width(required(config, {"qk_nope_head_dim"}));
  latent.rotary_head_size = read_width(required(config, {"qk_rope_head_dim"}));
  latent.value_head_size = read_width(required(config, {"v_head_dim"}));
  return latent;
}

void refuse_mixed_layers(JsonReader const& config) {
  for (std::string_view key : {"moe_layer_freq", "decoder_sparse_step"})
    if (auto const step = given(config, {key}); step && step->integer(1, 1 << 20) != 1)
      step->fail("is not supported: experts must be in every layer but the first ones");
  if (auto const dense = given(config, {"mlp_only_layers"}); dense && !dense->elements().empty())
    dense->fail("is not supported: experts must be in every layer but the first ones");
}

Experts read_experts(JsonReader const& config, Family const& family, JsonReader const& count, int layers) {
  refuse_mixed_layers(config);
  Experts experts;
  experts.count = static_cast<int>(read_width(count));
  experts.per_token = static_cast<int>(read_width(required(config, {"num_experts_per_tok", "experts_per_token"})));
  experts.ffn = read_width(required(config, {"moe_intermediate_size", "intermediate_size"}));
  if (auto const shared = given(config, {"n_shared_experts"}))
    experts.shared_ffn = shared->integer(0, widest / experts.ffn) * experts.ffn;
  else if (auto const width = given(config, {"shared_expert_intermediate_size"}))
    experts.shared_ffn = read_width(*width);
  if (auto const first = given(config, {"first_k_dense_replace"}))
    experts.first_dense_layers = static_cast<int>(first->integer(0, layers));
  experts.router_bias = family.router_bias;
  return experts;
}

void read_mlp(JsonReader const& config, Family const& family, Model& model) {
  model.activation = read_activation(config, family);
  auto const count = family.experts ? given(config, {"n_routed_experts", "num_experts", "num_local_experts"})
                                    : std::nullopt;
  if (count) {
    model.experts = read_experts(config, family, *count, model.layers);
    check_experts(*count, model);
  }
  auto const ffn = given(config, {"intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"});
  bool const is_four_hidden = !ffn && family.four_hidden;
  model.ffn = is_four_hidden ? 4 * model.hidden
                             : read_width(ffn ? *ffn : required(config, {"intermediate_size", "ffn_dim", "n_inner"}));
}

void read_attention(JsonReader const& config, Family const& family, Model& model) {
  Keys const heads{"num_attention_heads", "n_head"};
  model.heads = read_or(config, heads, family.heads, read_width);
  model.kv_heads = read_heads_of_values(config, family, model);
  model.head_size = read_head_size(config, family, model);
  model.positions = flag(config, "alibi", false) ? Positions::alibi : family.positions;
  if (family.latent_attention)
    model.latent_attention = read_latent_attention(config);
  if (auto const at = given(config, heads))
    check_heads(*at, model);
  model.sliding_window = read_sliding_window(config, family, model.layers);
  model.query_key_norm = family.query_key_norm;
  model.attention_sinks = family.attention_sinks;
}

bool has_dropout(JsonReader const& config) {
  for (std::string_view key : {"dropout", "resid_pdrop", "embd_pdrop", "hidden_dropout", "residual_dropout"})
    if (auto const share = given(config, {key}); share && share->number(0, 1) > 0)
      return true;
  return false;
}

void refuse_projected_embeddings(JsonReader const& config, Model const& model) {
  if (auto const width = given(config, {"word_embed_proj_dim"}); width && read_width(*width) != model.hidden)
    width->fail(fmt::format("is not supported: it must be hidden_size = {}", model.hidden));
}

} // namespace

bool is_hugging_face_config(JsonReader const& reader) {
  if (reader.find("format"))
    return false;
  auto const text = reader.find("text_config");
  return reader.find("model_type") || (text && text->is_object() && text->find("model_type"));
}

Model read_hugging_face_config(JsonReader const& reader) {
  auto const text = given(reader, {"text_config"}); // of a model that also sees or hears: its language model
  JsonReader const& config = text ? *text : reader;
  Family const& family = family_of(config, reader);
  Model model;
  model.name = name_of(reader);
  model.layers = read_layers(required(config, {"num_hidden_layers", "n_layer"}));
  model.hidden = read_width(required(config, {"hidden_size", "n_embd", "n_embed"}));
  refuse_projected_embeddings(config, model);
  model.norm = family.norm;
  model.norm_placement = family.norm_placement;
  model.embedding_norm = family.embedding_norm;
  read_attention(config, family, model);
  read_mlp(config, family, model);
  read_biases(config, family, model);
  std::string_view const parallel = family.model_type == "falcon" ? "parallel_attn" : "use_parallel_residual";
  model.parallel_residual = flag(config, parallel, family.parallel_residual);
  model.vocabulary = read_or(config, {"vocab_size"}, family.vocabulary, read_rows);
  model.max_positions = read_or(config, {"max_position_embeddings", "n_positions", "seq_length", "n_ctx"},
                                family.max_positions, read_rows);
  model.tied_embeddings = flag(config, "tie_word_embeddings", flag(reader, "tie_word_embeddings", family.tied));
  model.dropout = has_dropout(config);
  return model;
}

} // namespace foreplan

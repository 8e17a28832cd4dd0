#include "model/dimensions.hpp"

#include <fmt/format.h>

namespace foreplan {
namespace {

constexpr std::int64_t most_layers = 10'000;
constexpr std::int64_t most_rows = 1 << 26;
constexpr double most_parameters = 1e18; // a 64-bit count holds nine times as many

std::int64_t size_of_heads(Model const& model) {
  if (!model.latent_attention)
    return model.head_size;
  LatentAttention const& latent = *model.latent_attention;
  return latent.head_size + latent.rotary_head_size + latent.value_head_size;
}

double expert_parameters(Model const& model) {
  double const of_a_block = static_cast<double>(model.experts->count) * static_cast<double>(model.experts->ffn);
  return 4.0 * model.layers * static_cast<double>(model.hidden) * of_a_block; // three matrices, biases and router
}

} // namespace

int read_layers(JsonReader const& value) { return static_cast<int>(value.integer(1, most_layers)); }
std::int64_t read_width(JsonReader const& value) { return value.integer(1, widest); }
std::int64_t read_rows(JsonReader const& value) { return value.integer(1, most_rows); }

std::int64_t read_kv_heads(JsonReader const& value, std::int64_t heads) {
  std::int64_t const kv_heads = read_width(value);
  if (heads % kv_heads != 0)
    value.fail(fmt::format("must divide heads = {}", heads));
  return kv_heads;
}

void check_heads(JsonReader const& value, Model const& model) {
  std::int64_t const size = size_of_heads(model);
  if (model.heads * size > widest)
    value.fail(fmt::format("must be at most {} / {}, the size of a head", widest, size));
  if (model.positions == Positions::rotary && !model.latent_attention && size % 2 != 0)
    value.fail(fmt::format("needs an even head size, not {}: positions are rotary", size));
}

void check_experts(JsonReader const& value, Model const& model) {
  Experts const& experts = *model.experts;
  if (experts.per_token > experts.count)
    value.fail(fmt::format("must be at least the {} that a token takes", experts.per_token));
  if (experts.first_dense_layers >= model.layers)
    value.fail(fmt::format("leaves no layer with experts: the first {} of {} are dense", experts.first_dense_layers,
                           model.layers));
  if (expert_parameters(model) > most_parameters)
    value.fail("gives more than 1e18 parameters");
}

} // namespace foreplan

#include "model/read_model.hpp"

#include <fmt/format.h>

namespace foreplan {
namespace {

// Bounds that no model reaches and within which parameter_count() cannot overflow.
constexpr std::int64_t most_layers = 10'000;
constexpr std::int64_t widest = 1 << 20;
constexpr std::int64_t most_rows = 1 << 26; // of a vocabulary or a position table

std::int64_t read_head_size(JsonReader const& reader, Model const& model) {
  if (auto given = reader.find("head_size"))
    return given->integer(1, widest);
  if (model.hidden % model.heads != 0)
    reader["heads"].fail(fmt::format("must divide hidden = {}, or head_size be given", model.hidden));
  return model.hidden / model.heads;
}

} // namespace

Model read_model(std::string const& path) { return read_model(JsonReader::read_file(path, "foreplan model 1")); }

Model read_model(JsonReader const& reader) {
  reader.expect_keys({"name", "layers", "hidden", "heads", "kv_heads", "head_size", "ffn", "vocabulary",
                      "max_positions", "norm", "activation", "positions", "biases", "tied_embeddings", "dropout"});
  Model model;
  model.name = reader["name"].text();
  model.layers = static_cast<int>(reader["layers"].integer(1, most_layers));
  model.hidden = reader["hidden"].integer(1, widest);
  model.heads = reader["heads"].integer(1, widest);
  model.kv_heads = reader["kv_heads"].integer(1, widest);
  if (model.heads % model.kv_heads != 0)
    reader["kv_heads"].fail(fmt::format("must divide heads = {}", model.heads));
  model.head_size = read_head_size(reader, model);
  if (model.heads * model.head_size > widest)
    reader["heads"].fail(fmt::format("must be at most {} / head_size ({})", widest, model.head_size));
  model.ffn = reader["ffn"].integer(1, widest);
  model.vocabulary = reader["vocabulary"].integer(1, most_rows);
  model.max_positions = reader["max_positions"].integer(1, most_rows);
  model.norm = reader["norm"].choice<NormKind>(
      {{"layer_norm", NormKind::layer_norm}, {"rms_norm", NormKind::rms_norm}});
  model.activation = reader["activation"].choice<Activation>(
      {{"gelu", Activation::gelu}, {"swiglu", Activation::swiglu}});
  model.positions = reader["positions"].choice<Positions>(
      {{"learned", Positions::learned}, {"rotary", Positions::rotary}});
  if (model.positions == Positions::rotary && model.head_size % 2 != 0)
    reader["positions"].fail(fmt::format("needs an even head size, not {}", model.head_size));
  model.biases = reader["biases"].boolean();
  model.tied_embeddings = reader["tied_embeddings"].boolean();
  model.dropout = reader["dropout"].boolean();
  return model;
}

} // namespace foreplan

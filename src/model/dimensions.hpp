// Single dimensions of a model, as both readers of models take them: within bounds that no model reaches and in which
// parameter counts cannot overflow, and such that they go together. Each refuses at `value`.
#pragma once

#include "io/json_reader.hpp"
#include "model/model.hpp"

#include <cstdint>

namespace foreplan {

constexpr std::int64_t widest = 1 << 20; // what read_width() allows

int read_layers(JsonReader const& value);
std::int64_t read_width(JsonReader const& value);
std::int64_t read_rows(JsonReader const& value); // of a vocabulary or a position table
std::int64_t read_kv_heads(JsonReader const& value, std::int64_t heads);

// After the dimensions that they look at: number and size of heads at `value`, the number of experts at `value`.
void check_heads(JsonReader const& value, Model const& model);
void check_experts(JsonReader const& value, Model const& model);

} // namespace foreplan

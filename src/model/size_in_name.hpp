#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/model.hpp"

namespace foreplan {

// The number of parameters that a name claims: "Llama-2-7B" 7e9, "gpt2-350M" 350e6, "GPT-3 175B"; of "Qwen3-235B-A22B" the
// first, of "Mixtral-8x7B" none (experts share what is not MLP).
std::optional<double> size_in_name(std::string_view name);

// A sentence when name and parameters disagree by more than 15 %; else empty.
std::string warn_of_name(Model const& model);

} // namespace foreplan

#pragma once

#include "io/json_reader.hpp"
#include "model/model.hpp"

#include <string>

namespace foreplan {

// Reads models/*.json, "format": "foreplan model 1". Throws InputError.
Model read_model(std::string const& path);
Model read_model(JsonReader const& reader);

} // namespace foreplan

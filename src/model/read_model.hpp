#pragma once

#include "io/json_reader.hpp"
#include "model/model.hpp"

#include <string>

namespace foreplan {

// Reads a model: models/*.json ("format": "foreplan model 1") or a Hugging Face config.json (no "format", but
// "model_type"; see hugging_face.hpp). Throws InputError.
Model read_model(std::string const& path);
Model read_model(JsonReader const& reader);

} // namespace foreplan

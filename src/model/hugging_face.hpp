// Reads the config.json of a Hugging Face model (what transformers' AutoConfig reads). Keys that say nothing of the
// dimensions are ignored; null is as good as absent; an absent key has the default of its configuration class.
#pragma once

#include "io/json_reader.hpp"
#include "model/model.hpp"

namespace foreplan {

// Whether it says which family it is of: "model_type", here or in "text_config".
bool is_hugging_face_config(JsonReader const& reader);

// The model's name is the file's "_name_or_path", or made of the file's path. Throws InputError: an unknown family, a
// missing key, values that do not go together.
Model read_hugging_face_config(JsonReader const& reader);

} // namespace foreplan

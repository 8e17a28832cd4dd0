#pragma once

#include "cluster/cluster.hpp"
#include "io/json_reader.hpp"

#include <string>

namespace foreplan {

// Reads hardware_profiles/*.json, "format": "foreplan hardware 1". Every number is an object
//   {"value": "3350 GB/s", "kind": "datasheet", "source": "..."}    kind: datasheet, fitted or measured
// Throws InputError.
HardwareProfile read_profile(std::string const& path);
HardwareProfile read_profile(JsonReader const& reader);

} // namespace foreplan

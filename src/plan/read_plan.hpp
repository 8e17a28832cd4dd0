#pragma once

#include "io/json_reader.hpp"
#include "plan/plan.hpp"

#include <string>

namespace foreplan {

// Reads a plan, "format": "foreplan plan 1": sequence_length and global_batch are required, every other field has the
// default of Plan. Throws InputError. Whether the plan is legal for a model is check()'s to say.
Plan read_plan(std::string const& path);
Plan read_plan(JsonReader const& reader);

// The plan as read_plan() reads it: the fields that say most, and all others that differ from the default.
std::string plan_json(Plan const& plan);

} // namespace foreplan

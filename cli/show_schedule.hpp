// foreplan show schedule: a pipeline schedule drawn in text.
#pragma once

#include <string>
#include <vector>

namespace foreplan {

int show_schedule(std::vector<std::string> const& arguments);

} // namespace foreplan

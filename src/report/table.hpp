// Tables for terminals.
#pragma once

#include <string>
#include <vector>

namespace foreplan {

// The first column is flush left, the others flush right; the first row is the heading.
std::string table(std::vector<std::vector<std::string>> const& rows);

} // namespace foreplan

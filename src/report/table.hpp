// Tables for terminals.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace foreplan {

// The first column is flush left, the others flush right; the first row is the heading.
std::string table(std::vector<std::vector<std::string>> const& rows);

// The text broken between words into lines of at most `width` characters; the first begins with `head`, the others with as
// many spaces, or, after a head of more than 16 characters, with 4 more than it begins with.
std::string wrapped(std::string_view head, std::string_view text, std::size_t width = 118);

} // namespace foreplan

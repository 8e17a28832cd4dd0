#pragma once

#include <span>
#include <string>
#include <string_view>

namespace foreplan {

// The candidate that a mistyped word most likely means, by edit distance; empty when none is near.
std::string_view nearest(std::string_view word, std::span<std::string_view const> candidates);

// "did you mean "pp"? " when something is near, and always "valid: tp, pp, dp": the end of an error's line.
std::string suggestion(std::string_view word, std::span<std::string_view const> candidates);

} // namespace foreplan

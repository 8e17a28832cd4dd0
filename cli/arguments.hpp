// Arguments of a command, with errors as InputError: the argument, its value, the rule, valid values.
#pragma once

#include "cluster/cluster.hpp"
#include "model/model.hpp"

#include <cxxopts.hpp>

#include <optional>
#include <string>
#include <vector>

namespace foreplan {

// Parses; an unknown option is refused with the nearest known one. Empty when --help was asked for (and printed).
// `files`: as many words that are no options may stand there; they are the result's unmatched().
std::optional<cxxopts::ParseResult> parse(cxxopts::Options& options, std::vector<std::string> const& arguments,
                                          std::size_t files = 0);

std::string required_text(cxxopts::ParseResult const& parsed, std::string const& name);
std::int64_t whole_number(cxxopts::ParseResult const& parsed, std::string const& name, std::int64_t least,
                          std::int64_t most);
std::int64_t required_whole_number(cxxopts::ParseResult const& parsed, std::string const& name, std::int64_t least,
                                   std::int64_t most);
double share(cxxopts::ParseResult const& parsed, std::string const& name); // 0 to 1; "14 %" or "0.14"

} // namespace foreplan

#include "cli/arguments.hpp"

#include "io/input_error.hpp"
#include "io/suggestion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iostream>

namespace foreplan {

namespace {

std::vector<std::string> names_of(cxxopts::Options const& options) {
  std::vector<std::string> names;
  for (std::string const& group : options.groups())
    for (cxxopts::HelpOptionDetails const& option : options.group_help(group).options)
      for (std::string const& name : option.l)
        names.push_back("--" + name);
  return names;
}

void refuse_unknown(cxxopts::Options const& options, std::vector<std::string> const& arguments) {
  std::vector<std::string> const names = names_of(options);
  std::vector<std::string_view> const views(names.begin(), names.end());
  for (std::string const& argument : arguments) {
    std::string const name = argument.substr(0, argument.find('='));
    if (name.starts_with("--") && std::find(names.begin(), names.end(), name) == names.end())
      throw InputError(fmt::format("{}: no such option; {}", name, suggestion(name, views)));
  }
}

} // namespace

std::optional<cxxopts::ParseResult> parse(cxxopts::Options& options, std::vector<std::string> const& arguments,
                                          std::size_t files) {
  options.add_options()("help", "print this");
  refuse_unknown(options, arguments);
  std::vector<char const*> argv{"foreplan"};
  for (std::string const& argument : arguments)
    argv.push_back(argument.c_str());
  try {
    cxxopts::ParseResult parsed = options.parse(static_cast<int>(argv.size()), argv.data());
    if (parsed.unmatched().size() > files)
      throw InputError(fmt::format("{}: not an option; options begin with --", parsed.unmatched()[files]));
    if (parsed.count("help") > 0) {
      std::cout << options.help();
      return std::nullopt;
    }
    return parsed;
  } catch (cxxopts::exceptions::exception const& error) {
    throw InputError(error.what());
  }
}

std::string required_text(cxxopts::ParseResult const& parsed, std::string const& name) {
  if (parsed.count(name) == 0)
    throw InputError(fmt::format("--{}: missing; it must be given", name));
  return parsed[name].as<std::string>();
}

std::int64_t whole_number(cxxopts::ParseResult const& parsed, std::string const& name, std::int64_t least,
                          std::int64_t most) {
  auto const text = parsed[name].as<std::string>();
  std::int64_t value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most)
    throw InputError(fmt::format("--{} {}: must be a whole number from {} to {}", name, text, least, most));
  return value;
}

std::int64_t required_whole_number(cxxopts::ParseResult const& parsed, std::string const& name, std::int64_t least,
                                   std::int64_t most) {
  required_text(parsed, name);
  return whole_number(parsed, name, least, most);
}

double share(cxxopts::ParseResult const& parsed, std::string const& name) {
  auto const text = parsed[name].as<std::string>();
  double value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view const rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  bool const is_percent = rest == "%" || rest == " %";
  if (is_percent)
    value /= 100;
  if (error != std::errc{} || !(rest.empty() || is_percent) || !(value >= 0) || value >= 1)
    throw InputError(fmt::format("--{} {}: must be a share from 0 to below 1, as 0.14 or \"14 %\"", name, text));
  return value;
}

} // namespace foreplan

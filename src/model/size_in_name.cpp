#include "model/size_in_name.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace foreplan {
namespace {

constexpr double largest_difference = 0.15;

bool is_separator(char c) { return c == '-' || c == '_' || c == ' ' || c == '/' || c == '('; }

double unit_of(char c) {
  switch (c) {
    case 'b':
    case 'B': return 1e9;
    case 'm':
    case 'M': return 1e6;
    case 't':
    case 'T': return 1e12;
    default: return 0;
  }
}

std::optional<double> size_of_word(std::string_view word) {
  double number = 0;
  auto const [end, error] = std::from_chars(word.data(), word.data() + word.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || end != word.data() + word.size() - 1 || !(number > 0) || unit_of(*end) == 0)
    return std::nullopt;
  return number * unit_of(*end);
}

} // namespace

std::optional<double> size_in_name(std::string_view name) {
  for (std::size_t begin = 0; begin < name.size();) {
    std::size_t end = begin;
    while (end < name.size() && !is_separator(name[end]))
      ++end;
    if (std::string_view const word = name.substr(begin, end - begin); !word.empty())
      if (auto const size = size_of_word(word))
        return size;
    begin = end + 1;
  }
  return std::nullopt;
}

std::string warn_of_name(Model const& model) {
  std::optional<double> const claimed = size_in_name(model.name);
  double const actual = static_cast<double>(parameter_count(model));
  if (!claimed || std::abs(actual / *claimed - 1) <= largest_difference)
    return {};
  return fmt::format("the name {} says {:.3g} billion parameters, its dimensions give {:.3g} billion", model.name,
                     *claimed / 1e9, actual / 1e9);
}

} // namespace foreplan

#include "report/table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace foreplan {

std::string table(std::vector<std::vector<std::string>> const& rows) {
  std::vector<std::size_t> widths;
  for (auto const& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (std::size_t i = 0; i < rows[r].size(); ++i)
      line += i == 0 ? fmt::format("  {:<{}}", rows[r][i], widths[i]) : fmt::format("  {:>{}}", rows[r][i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
    if (r == 0) {
      std::size_t width = 0;
      for (std::size_t w : widths)
        width += w + 2;
      text += "  " + std::string(width - 2, '-') + '\n';
    }
  }
  return text;
}

std::string wrapped(std::string_view head, std::string_view text, std::size_t width) {
  std::size_t const own = std::min(head.find_first_not_of(' '), head.size());
  std::string const indent(head.size() <= 16 ? head.size() : own + 4, ' ');
  std::string result, line(head);
  while (!text.empty()) {
    std::string_view const word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (line.size() > indent.size() && line.size() + word.size() > width) {
      line.erase(line.find_last_not_of(' ') + 1);
      result += line + '\n';
      line = indent;
    }
    line += word;
    line += ' ';
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return result + line + '\n';
}

} // namespace foreplan

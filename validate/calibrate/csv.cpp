#include "validate/calibrate/csv.hpp"

#include "io/input_error.hpp"
#include "io/suggestion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>

namespace foreplan {

namespace {

// Cells of one record; a quoted cell may go on over lines. False at the end of the file.
bool read_record(std::istream& in, std::vector<std::string>& cells, int& line) {
  cells.clear();
  if (in.peek() == std::char_traits<char>::eof())
    return false;
  std::string cell;
  bool quoted = false;
  for (int c = in.get();; c = in.get()) {
    if (c == std::char_traits<char>::eof())
      break;
    auto const character = static_cast<char>(c);
    if (character == '"') {
      bool const doubled = quoted && in.peek() == '"';
      if (doubled)
        cell += static_cast<char>(in.get());
      else
        quoted = !quoted;
    } else if (character == ',' && !quoted) {
      cells.push_back(std::move(cell));
      cell.clear();
    } else if (character == '\n') {
      ++line;
      if (!quoted)
        break;
      cell += character;
    } else if (character != '\r') {
      cell += character;
    }
  }
  cells.push_back(std::move(cell));
  return true;
}

} // namespace

CsvTable read_csv(std::string const& path) {
  std::ifstream file(path);
  if (!file)
    throw InputError(fmt::format("{}: cannot be read; it must be a table of comma-separated values", path));
  CsvTable table;
  table.path = path;
  int line = 1;
  if (!read_record(file, table.columns, line))
    throw InputError(fmt::format("{}: is empty; the first line must name the columns", path));
  std::vector<std::string> cells;
  for (int first = line; read_record(file, cells, line); first = line) {
    if (cells.size() == 1 && cells[0].empty())
      continue;
    if (cells.size() != table.columns.size())
      throw InputError(fmt::format("{}: line {}: has {} cells; must have {}, as the header line", path, first,
                                   cells.size(), table.columns.size()));
    table.rows.push_back(cells);
    table.lines.push_back(first);
  }
  return table;
}

std::optional<std::size_t> CsvRow::find(std::string_view column) const {
  auto const at = std::find(table_->columns.begin(), table_->columns.end(), column);
  if (at == table_->columns.end())
    return std::nullopt;
  return static_cast<std::size_t>(at - table_->columns.begin());
}

std::string const& CsvRow::text(std::string_view column) const {
  auto const index = find(column);
  if (!index) {
    std::vector<std::string_view> const names(table_->columns.begin(), table_->columns.end());
    throw InputError(fmt::format("{}: column {}: is missing; {}", table_->path, column, suggestion(column, names)));
  }
  return table_->rows[row_][*index];
}

std::string CsvRow::text_or_empty(std::string_view column) const { return find(column) ? text(column) : std::string{}; }

std::optional<double> CsvRow::number(std::string_view column) const {
  if (!find(column) || text(column).empty())
    return std::nullopt;
  std::string const& cell = text(column);
  double value = 0;
  auto const [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc{} || end != cell.data() + cell.size() || !std::isfinite(value) || value < 0)
    fail(column, "must be a number of at least 0");
  return value;
}

double CsvRow::required(std::string_view column) const {
  (void)text(column);
  std::optional<double> const value = number(column);
  if (!value || *value <= 0)
    fail(column, "must be a number above 0");
  return *value;
}

void CsvRow::fail(std::string_view column, std::string_view rule) const {
  throw InputError(
      fmt::format("{}: line {}: {}: \"{}\" {}", table_->path, table_->lines[row_], column, text(column), rule));
}

} // namespace foreplan

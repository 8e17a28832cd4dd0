// Tables of comma-separated values with a header line, as measurements are published. Errors name file, line, column,
// value and rule.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace foreplan {

struct CsvTable {
  std::string path;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows; // as many cells as columns
  std::vector<int> lines;                     // of the file, of each row
};

// RFC 4180: cells may be quoted. Throws InputError.
CsvTable read_csv(std::string const& path);

// One row, by the names of columns.
class CsvRow {
public:
  CsvRow(CsvTable const& table, std::size_t row) : table_(&table), row_(row) {}
  [[nodiscard]] std::string const& text(std::string_view column) const;      // the column must exist
  [[nodiscard]] std::string text_or_empty(std::string_view column) const;    // or not
  [[nodiscard]] std::optional<double> number(std::string_view column) const; // >= 0; empty: nothing
  [[nodiscard]] double required(std::string_view column) const;              // > 0
  [[noreturn]] void fail(std::string_view column, std::string_view rule) const;

private:
  [[nodiscard]] std::optional<std::size_t> find(std::string_view column) const;
  CsvTable const* table_;
  std::size_t row_;
};

} // namespace foreplan

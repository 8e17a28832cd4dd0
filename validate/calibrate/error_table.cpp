#include "validate/calibrate/error_table.hpp"

#include "report/table.hpp"

#include <fmt/format.h>

namespace foreplan {

std::string percent(double value) { return fmt::format("{:.1f} %", 100 * value); }

std::string error_table(std::string_view of, std::vector<ErrorLine> const& lines, Spread spread) {
  std::vector<std::vector<std::string>> rows{{std::string(of), "", "count", "median", "p90", "bias", "mean"}};
  if (spread.median > 0)
    rows.back().emplace_back("in spreads");
  for (ErrorLine const& line : lines) {
    ErrorSummary const& errors = line.errors;
    if (errors.count == 0)
      continue;
    rows.push_back({line.by, line.value, std::to_string(errors.count), percent(errors.median), percent(errors.p90),
                    fmt::format("{:+.1f} %", 100 * errors.bias), percent(errors.mean)});
    if (spread.median > 0)
      rows.back().push_back(fmt::format("{:.1f} / {:.1f}", errors.median / spread.median, errors.p90 / spread.p90));
  }
  return table(rows);
}

std::string figure_line(std::string_view by, std::string_view value, ErrorSummary const& errors) {
  return fmt::format("{},\"{}\",{},{:.1f},{:.1f}\n", by, value, errors.count, 100 * errors.median, 100 * errors.p90);
}

} // namespace foreplan

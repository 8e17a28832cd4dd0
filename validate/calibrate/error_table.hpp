// Errors of groups of rows as a table, and as the lines of the file that a test holds against later figures.
#pragma once

#include "validate/calibrate/statistics.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace foreplan {

struct ErrorLine {
  std::string by, value; // "source", "nanotron"
  ErrorSummary errors;
};

// What repeats of a measurement deviate by: a floor of every prediction's error.
struct Spread {
  double median = 0;
  double p90 = 0;
};

// With a spread, errors are also given in units of it.
std::string error_table(std::string_view of, std::vector<ErrorLine> const& lines, Spread spread = {});

std::string percent(double value); // "5.3 %"

// by, value, count, median, p90 (%): a line of CSV.
inline constexpr std::string_view figures_header = "by,value,count,median,p90\n";
std::string figure_line(std::string_view by, std::string_view value, ErrorSummary const& errors);

} // namespace foreplan

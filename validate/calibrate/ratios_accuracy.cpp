#include "validate/calibrate/ratios_accuracy.hpp"

#include "report/table.hpp"
#include "validate/calibrate/csv.hpp"
#include "validate/calibrate/domino_ratios.hpp"
#include "validate/calibrate/profile_text.hpp"
#include "validate/calibrate/statistics.hpp"

#include <fmt/format.h>

#include <cmath>

namespace foreplan {

namespace {

std::string unknown(CsvRow const& row) {
  return row.number("zero").value_or(0) >= 2 ? "ZeRO 3, ZeRO++, offload" : "model or plan not stated";
}

} // namespace

RatioAccuracyReport ratio_accuracy(std::string const& data) {
  RatioAccuracyReport report;
  report.data = data.empty() ? FOREPLAN_PUBLISHED "/ratios.csv" : data;
  CsvTable const table = read_csv(report.data);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    CsvRow const row(table, i);
    std::string why;
    if (!is_of_domino(row))
      ++report.left_out[unknown(row)];
    else if (std::optional<JudgedRatio> const judged = judged_domino_ratio(row, why))
      report.rows.push_back(*judged);
    else
      ++report.left_out[why];
  }
  std::vector<JudgedRatio> const hidden = hidden_shares(report.rows);
  report.rows.insert(report.rows.end(), hidden.begin(), hidden.end());
  return report;
}

std::string ratio_accuracy_text(RatioAccuracyReport const& report) {
  std::string text = fmt::format("Published ratios, {}\n\n", report.data);
  std::vector<std::vector<std::string>> lines{{"row", "", "measured", "predicted", "difference", "error"}};
  std::vector<double> ratios;
  for (JudgedRatio const& row : report.rows) {
    lines.push_back({row.id, row.what, fmt::format("{:.3f}", row.measured), fmt::format("{:.3f}", row.predicted),
                     fmt::format("{:+.3f}", row.predicted - row.measured),
                     fmt::format("{:+.1f} %", 100 * (row.predicted / row.measured - 1))});
    ratios.push_back(std::log(row.predicted / row.measured));
  }
  ErrorSummary const errors = summarise(ratios);
  text += table(lines) + fmt::format("{} rows, error {:.1f} % median, {:.1f} % p90\n\nRows that cannot be expressed:\n",
                                     errors.count, 100 * errors.median, 100 * errors.p90);
  for (auto const& [why, count] : report.left_out)
    text += fmt::format("  {:5} {}\n", count, why);
  return text;
}

std::string ratio_accuracy_json(RatioAccuracyReport const& report) {
  std::string text = fmt::format("{{\"format\": \"foreplan ratio accuracy 1\", \"data\": {}, \"rows\": [",
                                 json_quoted(report.data));
  for (std::size_t i = 0; i < report.rows.size(); ++i)
    text += fmt::format("{}\n  {{\"id\": {}, \"what\": {}, \"measured\": {}, \"predicted\": {}}}", i == 0 ? "" : ",",
                        json_quoted(report.rows[i].id), json_quoted(report.rows[i].what), report.rows[i].measured,
                        report.rows[i].predicted);
  return text + "\n]}\n";
}

} // namespace foreplan

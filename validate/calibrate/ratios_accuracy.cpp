#include "validate/calibrate/ratios_accuracy.hpp"

#include "report/table.hpp"
#include "validate/calibrate/csv.hpp"
#include "validate/calibrate/domino_ratios.hpp"
#include "validate/calibrate/profile_text.hpp"
#include "validate/calibrate/statistics.hpp"
#include "validate/calibrate/zero_pp_accuracy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace foreplan {

namespace {

std::int64_t whole(CsvRow const& row, std::string_view column) {
  return static_cast<std::int64_t>(std::llround(row.required(column)));
}

bool is_zero_pp(CsvRow const& row) {
  return row.text("quant_comm").find("qwZ") != std::string::npos && row.number("layers");
}

std::string unknown(CsvRow const& row) {
  if (row.text("framework") == "DeepSpeed ZeRO-3" && row.text("quant_comm") == "none")
    return "what ZeRO++ is compared with";
  return row.number("zero").value_or(0) >= 2 && row.number("layers") ? "ZeRO 2 and 3, offload"
                                                                     : "model or plan not stated";
}

// GPT as Megatron-DeepSpeed builds it; the vocabulary is GPT-2's, as in the tutorial.
Model gpt_of(CsvRow const& row) {
  Model model;
  model.name = row.text("model");
  model.layers = static_cast<int>(whole(row, "layers"));
  model.hidden = whole(row, "hidden");
  model.heads = model.kv_heads = whole(row, "heads");
  model.head_size = model.hidden / model.heads;
  model.ffn = 4 * model.hidden;
  model.vocabulary = 50304;
  model.max_positions = whole(row, "tokens_per_gpu_micro_batch");
  model.norm = NormKind::layer_norm;
  model.activation = Activation::gelu;
  model.positions = Positions::learned;
  model.biases = model.tied_embeddings = model.dropout = true;
  return model;
}

} // namespace

RatioAccuracyReport ratio_accuracy(std::string const& data) {
  RatioAccuracyReport report;
  report.data = data.empty() ? FOREPLAN_PUBLISHED "/ratios.csv" : data;
  CsvTable const table = read_csv(report.data);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    CsvRow const row(table, i);
    std::string why;
    if (is_zero_pp(row))
      report.zero_pp.push_back(
          {row.text("source_id"),
           fmt::format("{} on {:.0f} V100, {:.0f} tokens, {:.1f} GB/s a node", row.text("model"), row.required("gpus"),
                       row.required("tokens_per_gpu_micro_batch"), row.required("internode_GBps_per_node")),
           row.required("rel_value"), zero_pp_gain(gpt_of(row), row)});
    else if (!is_of_domino(row))
      ++report.left_out[unknown(row)];
    else if (std::optional<JudgedRatio> const judged = judged_domino_ratio(row, why))
      report.rows.push_back(*judged);
    else
      ++report.left_out[why];
  }
  report.phases = zero_pp_phases();
  std::vector<JudgedRatio> const hidden = hidden_shares(report.rows);
  report.rows.insert(report.rows.end(), hidden.begin(), hidden.end());
  return report;
}

namespace {

std::string zero_pp_text(std::vector<JudgedRatio> const& rows) {
  std::vector<std::vector<std::string>> lines{{"row", "", "measured", "predicted", "difference"}};
  std::vector<double> differences;
  for (JudgedRatio const& row : rows) {
    double const difference = row.predicted - row.measured;
    lines.push_back({row.id, row.what, fmt::format("{:.3f}", row.measured), fmt::format("{:.3f}", row.predicted),
                     fmt::format("{:+.3f}", difference)});
    differences.push_back(std::abs(difference));
  }
  if (differences.empty())
    return "";
  std::sort(differences.begin(), differences.end());
  std::size_t const middle = differences.size() / 2;
  double const median = differences.size() % 2 == 1 ? differences[middle]
                                                    : (differences[middle - 1] + differences[middle]) / 2;
  return fmt::format(
      "Throughput with ZeRO++ over that with ZeRO-3; one sequence a device assumed\n\n{}{} rows, difference "
      "{:.3f} median, {:.3f} worst\n",
      table(lines), rows.size(), median, differences.back());
}

} // namespace

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
  text += table(lines) + fmt::format("{} rows, error {:.1f} % median, {:.1f} % p90\n\n{}\n{}\nRows that cannot be "
                                     "expressed:\n",
                                     errors.count, 100 * errors.median, 100 * errors.p90, zero_pp_text(report.zero_pp),
                                     zero_pp_phases_text(report.phases));
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
  text += "\n], \"zero_pp\": [";
  for (std::size_t i = 0; i < report.zero_pp.size(); ++i)
    text += fmt::format("{}\n  {{\"id\": {}, \"what\": {}, \"measured\": {}, \"predicted\": {}}}", i == 0 ? "" : ",",
                        json_quoted(report.zero_pp[i].id), json_quoted(report.zero_pp[i].what),
                        report.zero_pp[i].measured, report.zero_pp[i].predicted);
  return text + "\n]}\n";
}

} // namespace foreplan

#include "validate/calibrate/runs_memory.hpp"

#include "report/table.hpp"
#include "validate/calibrate/error_table.hpp"
#include "validate/calibrate/parallel.hpp"
#include "validate/calibrate/profile_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace foreplan {

namespace {

MemoryCount count_of(PublishedRun const& run) {
  bool const by_driver = run.memory_note.find("nvidia-smi") != std::string::npos ||
                         run.memory_note.find("device used") != std::string::npos;
  if (by_driver)
    return MemoryCount::device;
  return run.memory_note.find("PyTorch allocator") != std::string::npos ? MemoryCount::reserved
                                                                        : MemoryCount::allocated;
}

// nanotron prints its first rank.
bool counts_first_stage(PublishedRun const& run) { return run.framework == "nanotron"; }

JudgedMemory judge(PublishedRun const& run) {
  JudgedMemory judged;
  judged.run = run;
  judged.count = count_of(run);
  std::vector<StagePeak> const peaks = stage_peaks(run.model, run.plan);
  auto const fullest = std::ranges::max_element(peaks, {}, [](StagePeak const& peak) { return peak.needed.value(); });
  auto const counted = counts_first_stage(run) ? peaks.begin() : fullest;
  judged.peak = counted->tensors;
  judged.stage = static_cast<int>(counted - peaks.begin());
  HardwareProfile const& profile = run.cluster.profile;
  switch (judged.count) {
    case MemoryCount::allocated: judged.predicted = static_cast<double>(counted->tensors.use.total()); break;
    case MemoryCount::reserved: judged.predicted = counted->reserved.value(); break;
    case MemoryCount::device: judged.predicted = (counted->reserved + profile.reserved).value(); break;
  }
  judged.needed = fullest->needed.value();
  judged.usable = usable_memory(profile).value();
  judged.fits = probability_of_fit(fullest->needed, usable_memory(profile));
  return judged;
}

std::string to_string(MemoryCount count) {
  switch (count) {
    case MemoryCount::allocated: return "allocated";
    case MemoryCount::reserved: return "reserved";
    default: return "device (nvidia-smi)";
  }
}

struct Verdicts {
  int right = 0, all = 0, false_fits = 0, false_oom = 0;
  double worst_false_fit = 0; // need over usable memory by the table's own estimate
};

bool says_fits(JudgedMemory const& row) { return row.fits >= confident; }
bool is_scored(JudgedMemory const& row) { return row.run.verdict == "fits" || row.run.verdict == "oom"; }
bool did_fit(JudgedMemory const& row) { return row.run.verdict == "fits"; }

// How near the limit a run was, by what was measured or the table's estimate: need over usable memory.
double pressure(JudgedMemory const& row) {
  return did_fit(row) ? row.run.peak_memory / row.usable : row.run.estimated_need / row.usable;
}

bool is_hard(JudgedMemory const& row) {
  return did_fit(row) ? pressure(row) > 0.75 : row.run.estimated_need > 0 && pressure(row) < 1.3;
}

Verdicts verdicts_of(std::vector<JudgedMemory> const& rows, std::function<bool(JudgedMemory const&)> const& which) {
  Verdicts verdicts;
  for (JudgedMemory const& row : rows) {
    if (!is_scored(row) || !which(row))
      continue;
    ++verdicts.all;
    if (says_fits(row) == did_fit(row))
      ++verdicts.right;
    else if (did_fit(row))
      ++verdicts.false_oom;
    else {
      ++verdicts.false_fits;
      verdicts.worst_false_fit = std::max(verdicts.worst_false_fit, pressure(row));
    }
  }
  return verdicts;
}

double log_ratio(JudgedMemory const& row) { return std::log(row.predicted / row.run.peak_memory); }

using Rows = std::vector<JudgedMemory const*>;

ErrorLine line_of(std::string by, std::string value, Rows const& rows) {
  std::vector<double> ratios;
  for (JudgedMemory const* row : rows)
    ratios.push_back(log_ratio(*row));
  return {std::move(by), std::move(value), summarise(ratios)};
}

std::string row_text(JudgedMemory const& row) {
  constexpr double gib = 1024.0 * 1024 * 1024;
  std::string parts;
  for (int c = 0; c < category_count; ++c)
    if (std::int64_t const bytes = row.peak.use.by_category[static_cast<std::size_t>(c)]; bytes > 0)
      parts += fmt::format("{}{} {:.1f}", parts.empty() ? "" : ", ", to_string(static_cast<Category>(c)),
                           static_cast<double>(bytes) / gib);
  return fmt::format(
      "  {}: {} on {} {}: {}: {:.1f} GiB predicted, {:.1f} GiB measured ({:+.1f} %)\n    at {} (GiB: {})\n", row.run.id,
      row.run.model.name, row.run.plan.world_size(), row.run.chip, describe(row.run.plan), row.predicted / gib,
      row.run.peak_memory / gib, 100 * (row.predicted / row.run.peak_memory - 1), row.peak.op, parts);
}

} // namespace

namespace {

bool is_measured(JudgedMemory const& row) { return row.run.peak_memory > 0 && did_fit(row); }

std::map<std::string, Rows> by_source(MemoryAccuracyReport const& report) {
  std::map<std::string, Rows> sources;
  for (JudgedMemory const& row : report.rows)
    if (is_measured(row))
      sources[row.run.source].push_back(&row);
  return sources;
}

} // namespace

MemoryAccuracyReport memory_accuracy(std::string const& data) {
  MemoryAccuracyReport report;
  report.data = data.empty() ? published_oom_path() : data;
  RunTable const table = read_run_table(report.data);
  report.left_out = table.left_out;
  report.rows.resize(table.runs.size());
  in_parallel(table.runs.size(), [&](std::size_t i) { report.rows[i] = judge(table.runs[i]); });
  return report;
}

std::vector<ErrorLine> memory_lines(MemoryAccuracyReport const& report) {
  std::map<std::string, Rows> counts;
  Rows measured;
  for (JudgedMemory const& row : report.rows)
    if (is_measured(row)) {
      measured.push_back(&row);
      counts[to_string(row.count)].push_back(&row);
    }
  std::vector<ErrorLine> lines{line_of("memory", "all", measured)};
  for (auto const& [name, rows] : counts)
    lines.push_back(line_of("memory counted as", name, rows));
  for (auto const& [name, rows] : by_source(report))
    lines.push_back(line_of("memory of source", name, rows));
  return lines;
}

std::string memory_figures_csv(MemoryAccuracyReport const& report) {
  std::string text;
  for (ErrorLine const& line : memory_lines(report))
    text += figure_line(line.by, line.value, line.errors);
  Verdicts const all = verdicts_of(report.rows, [](JudgedMemory const&) { return true; });
  Verdicts const hard = verdicts_of(report.rows, is_hard);
  auto const wrong = [](Verdicts const& v) { return 100.0 * (v.all - v.right) / v.all; };
  // shares of wrong verdicts stand where medians stand, false fits where p90s do
  text += fmt::format("wrong verdicts,\"all\",{},{:.1f},{}\n", all.all, wrong(all), all.false_fits);
  text += fmt::format("wrong verdicts,\"hard zone\",{},{:.1f},{}\n", hard.all, wrong(hard), hard.false_fits);
  return text;
}

std::string memory_accuracy_text(MemoryAccuracyReport const& report) {
  std::string text = fmt::format("Peak memory of published training runs, {}\n\n{}", report.data,
                                 error_table("peak memory", memory_lines(report)));
  std::vector<std::vector<std::string>> verdicts{{"verdicts", "rows", "right", "false fits", "worst", "false oom"}};
  auto add = [&](std::string const& name, std::function<bool(JudgedMemory const&)> const& which) {
    Verdicts const v = verdicts_of(report.rows, which);
    if (v.all > 0)
      verdicts.push_back({name, std::to_string(v.all), percent(static_cast<double>(v.right) / v.all),
                          std::to_string(v.false_fits), fmt::format("{:.2f}", v.worst_false_fit),
                          std::to_string(v.false_oom)});
  };
  add("all", [](JudgedMemory const&) { return true; });
  add("hard zone", is_hard);
  text += '\n' + table(verdicts) +
          "  worst: of false fits, the need by the table's estimate over the usable memory\n"
          "  hard zone: fits above 75 % of the usable memory, oom that need less than 1.3 times as much\n";
  for (auto& [name, rows] : by_source(report)) {
    std::ranges::stable_sort(rows, std::greater{}, [](auto const* row) { return std::abs(log_ratio(*row)); });
    text += fmt::format("\nWorst of {}:\n", name);
    for (std::size_t i = 0; i < std::min<std::size_t>(3, rows.size()); ++i)
      text += row_text(*rows[i]);
  }
  text += "\nRows that cannot be expressed:\n";
  for (auto const& [why, count] : report.left_out)
    text += fmt::format("  {:5} {}\n", count, why);
  return text;
}

std::string memory_accuracy_json(MemoryAccuracyReport const& report) {
  std::string text = fmt::format("{{\"format\": \"foreplan memory accuracy 1\", \"data\": {}, \"rows\": [",
                                 json_quoted(report.data));
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    JudgedMemory const& row = report.rows[i];
    text += fmt::format(
        "{}\n  {{\"id\": {}, \"source\": {}, \"chip\": {}, \"plan\": {}, \"verdict\": {}, \"counted\": {}, "
        "\"measured\": {}, \"predicted\": {}, \"needed\": {}, \"usable\": {}, \"fits\": {:.4f}, "
        "\"estimated_need\": {}}}",
        i == 0 ? "" : ",", json_quoted(row.run.id), json_quoted(row.run.source), json_quoted(row.run.chip),
        json_quoted(describe(row.run.plan)), json_quoted(row.run.verdict), json_quoted(to_string(row.count)),
        row.run.peak_memory, row.predicted, row.needed, row.usable, row.fits, row.run.estimated_need);
  }
  return text + "\n]}\n";
}

} // namespace foreplan

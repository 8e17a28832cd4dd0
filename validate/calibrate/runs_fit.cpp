#include "validate/calibrate/runs_fit.hpp"

#include "report/table.hpp"
#include "validate/calibrate/error_table.hpp"
#include "validate/calibrate/parallel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace foreplan {

namespace {

// Steps are simulated at these values and interpolated in between: their logarithm, linear in the logarithms of both.
constexpr std::array clocks{0.78, 0.86, 0.93, 1.0};
constexpr std::array issues{40e-6, 53e-6, 70e-6, 92e-6}; // s
constexpr std::size_t fewest_rows = 20;                  // of a chip or framework that is fitted

struct Surface {
  std::array<std::array<double, issues.size()>, clocks.size()> log_step{};
  double issue = 0; // of the hardware profile: unfitted
  bool has_clock = false, has_issue = false;
  double shipped_clock = 1, shipped_issue = 0;
};

template <std::size_t n>
std::pair<std::size_t, double> place(std::array<double, n> const& grid, double value) {
  std::size_t below = 0;
  while (below + 2 < n && grid[below + 1] <= value)
    ++below;
  return {below, std::log(value / grid[below]) / std::log(grid[below + 1] / grid[below])};
}

double log_step(Surface const& surface, double clock, double issue) {
  auto const [i, x] = place(clocks, clock);
  auto const [j, y] = place(issues, issue);
  auto const& t = surface.log_step;
  return (1 - x) * ((1 - y) * t[i][j] + y * t[i][j + 1]) + x * ((1 - y) * t[i + 1][j] + y * t[i + 1][j + 1]);
}

Surface surface_of(PublishedRun const& run, std::set<std::string> const& chips,
                   std::set<std::string> const& frameworks) {
  Surface surface;
  PublishedRun changed = run;
  surface.has_clock = chips.contains(run.hardware) && run.cluster.profile.kernels.has_value();
  surface.has_issue = frameworks.contains(run.framework);
  surface.issue = run.cluster.profile.issue.value();
  Seconds const own = run.plan.execution.issue;
  surface.shipped_issue = own > Seconds(0) ? own.value() : surface.issue;
  surface.shipped_clock = surface.has_clock ? run.cluster.profile.kernels->clock_under_load : 1;
  for (std::size_t i = 0; i < clocks.size(); ++i)
    for (std::size_t j = 0; j < issues.size(); ++j) {
      if ((i > 0 && !surface.has_clock) || (j > 0 && !surface.has_issue)) {
        surface.log_step[i][j] =
            surface.log_step[i > 0 && !surface.has_clock ? 0 : i][j > 0 && !surface.has_issue ? 0 : j];
        continue;
      }
      if (surface.has_clock)
        changed.cluster.profile.kernels->clock_under_load = clocks[i];
      if (surface.has_issue)
        changed.plan.execution.issue = Seconds(issues[j]);
      surface.log_step[i][j] = std::log(step_time(changed.model, changed.plan, changed.cluster).value());
    }
  return surface;
}

struct FitRow {
  PublishedRun const* run;
  Surface surface;
  double log_measured;
  double weight; // repeats and sizes of one family do not outvote others: 1 / sqrt(rows of the family)
};
using FitRows = std::vector<FitRow const*>;

double clock_of(RunParameters const& parameters, PublishedRun const& run) {
  auto const found = parameters.clock.find(run.hardware);
  return found == parameters.clock.end() ? 1 : found->second;
}

double issue_of(RunParameters const& parameters, FitRow const& row) {
  auto const found = parameters.issue.find(row.run->framework);
  return found == parameters.issue.end() ? row.surface.issue : found->second;
}

double predicted(FitRow const& row, RunParameters const& parameters) {
  return log_step(row.surface, clock_of(parameters, *row.run), issue_of(parameters, row));
}

// Sum of |log error|: outliers (a busy network) do not move it.
double misfit(FitRows const& rows, RunParameters const& parameters) {
  double sum = 0;
  for (FitRow const* row : rows)
    sum += row->weight * std::abs(predicted(*row, parameters) - row->log_measured);
  return sum;
}

// Line search: the value of a grid with the least misfit; `value` is one of `parameters`.
void search(FitRows const& rows, RunParameters const& parameters, double& value, double first, double last,
            double step) {
  double best = value, least = misfit(rows, parameters);
  for (double tried = first; tried <= last + step / 2; tried += step) {
    value = tried;
    if (double const here = misfit(rows, parameters); here < least) {
      least = here;
      best = tried;
    }
  }
  value = best;
}

FitRows rows_with(FitRows const& rows, std::string PublishedRun::*name, std::string const& value) {
  FitRows result;
  std::ranges::copy_if(rows, std::back_inserter(result), [&](FitRow const* row) { return row->run->*name == value; });
  return result;
}

// One number after the other, until none moves.
RunParameters fit(FitRows const& rows) {
  RunParameters parameters;
  std::map<std::string, FitRows> chips, frameworks;
  for (FitRow const* row : rows) {
    if (row->surface.has_clock) {
      parameters.clock[row->run->hardware] = 1;
      chips.try_emplace(row->run->hardware, rows_with(rows, &PublishedRun::hardware, row->run->hardware));
    }
    if (row->surface.has_issue) {
      parameters.issue[row->run->framework] = row->surface.issue;
      frameworks.try_emplace(row->run->framework, rows_with(rows, &PublishedRun::framework, row->run->framework));
    }
  }
  constexpr int rounds = 10;
  for (int round = 0; round < rounds; ++round) {
    RunParameters const before = parameters;
    for (auto const& [name, of_chip] : chips)
      search(of_chip, parameters, parameters.clock[name], clocks.front(), clocks.back(), 0.01);
    for (auto const& [name, of_framework] : frameworks)
      search(of_framework, parameters, parameters.issue[name], issues.front(), issues.back(), 1e-6);
    if (before.clock == parameters.clock && before.issue == parameters.issue)
      break;
  }
  return parameters;
}

// A chip that no row is left of takes the mean clock of the others.
double mean_clock(RunParameters const& parameters) {
  double sum = 0;
  for (auto const& [name, clock] : parameters.clock)
    sum += clock;
  return parameters.clock.empty() ? 1 : sum / static_cast<double>(parameters.clock.size());
}

RunParameters fit_without(std::vector<FitRow> const& rows, std::string PublishedRun::*name, std::string const& value) {
  FitRows others;
  for (FitRow const& row : rows)
    if (row.run->*name != value)
      others.push_back(&row);
  RunParameters parameters = fit(others);
  double const mean = mean_clock(parameters);
  for (FitRow const& row : rows)
    if (row.surface.has_clock)
      parameters.clock.try_emplace(row.run->hardware, mean);
  return parameters;
}

// Predicts the rows of each value of `name` by a fit without them.
void leave_out(std::vector<FitRow> const& rows, std::string PublishedRun::*name, double FoldRow::*into,
               std::vector<FoldRow>& result) {
  std::map<std::string, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < rows.size(); ++i)
    groups[rows[i].run->*name].push_back(i);
  std::vector<std::pair<std::string, std::vector<std::size_t>>> const list(groups.begin(), groups.end());
  in_parallel(list.size(), [&](std::size_t g) {
    RunParameters const parameters = fit_without(rows, name, list[g].first);
    for (std::size_t i : list[g].second)
      result[i].*into = std::exp(predicted(rows[i], parameters));
  });
}

std::set<std::string> frequent(std::vector<JudgedRun> const& runs, std::string PublishedRun::*name) {
  std::map<std::string, std::size_t> counts;
  for (JudgedRun const& run : runs)
    ++counts[run.run.*name];
  std::set<std::string> result;
  for (auto const& [value, count] : counts)
    if (count >= fewest_rows)
      result.insert(value);
  return result;
}

std::vector<FitRow> fit_rows(std::vector<JudgedRun> const& runs) {
  std::set<std::string> const chips = frequent(runs, &PublishedRun::hardware);
  std::set<std::string> const frameworks = frequent(runs, &PublishedRun::framework);
  std::map<std::string, int> families;
  for (JudgedRun const& run : runs)
    ++families[run.run.family];
  std::vector<FitRow> rows(runs.size());
  in_parallel(runs.size(), [&](std::size_t i) {
    PublishedRun const& run = runs[i].run;
    rows[i] = {&run, surface_of(run, chips, frameworks), std::log(run.step), 1 / std::sqrt(families.at(run.family))};
  });
  return rows;
}

} // namespace

FoldReport run_folds(std::string const& data, std::function<void(std::string const&)> const& progress) {
  auto const tell = [&](std::string const& what) {
    if (progress)
      progress(what);
  };
  FoldReport report;
  report.runs = runs_accuracy(data).rows;
  std::erase_if(report.runs, [](JudgedRun const& run) { return !is_scored(run); });
  tell(fmt::format("{} rows at {} values of clock and issue", report.runs.size(), clocks.size() * issues.size()));
  std::vector<FitRow> const rows = fit_rows(report.runs);
  FitRows all;
  for (FitRow const& row : rows)
    all.push_back(&row);
  report.parameters = fit(all);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    FitRow const& row = rows[i];
    report.rows.push_back({.run = row.run,
                           .unfitted = std::exp(log_step(row.surface, 1, row.surface.issue)),
                           .shipped = report.runs[i].predicted,
                           .fitted = std::exp(predicted(row, report.parameters))});
  }
  tell("families left out");
  leave_out(rows, &PublishedRun::family, &FoldRow::no_family, report.rows);
  tell("frameworks left out");
  leave_out(rows, &PublishedRun::framework, &FoldRow::no_framework, report.rows);
  std::set<std::string> families;
  for (FitRow const& row : rows)
    families.insert(row.run->family);
  report.families = static_cast<int>(families.size());
  return report;
}

namespace {

FoldBand band_of(std::string value, std::vector<FoldRow const*> const& rows) {
  auto const errors = [&](double FoldRow::*prediction) {
    std::vector<double> ratios;
    for (FoldRow const* row : rows)
      ratios.push_back(std::log(row->*prediction / row->run->step));
    return summarise(ratios);
  };
  return {std::move(value),         errors(&FoldRow::unfitted),  errors(&FoldRow::shipped),
          errors(&FoldRow::fitted), errors(&FoldRow::no_family), errors(&FoldRow::no_framework)};
}

std::string errors_text(ErrorSummary const& errors) {
  return fmt::format("{:.1f} / {:.1f} %", 100 * errors.median, 100 * errors.p90);
}

} // namespace

std::vector<FoldBand> fold_bands(FoldReport const& report) {
  std::map<std::string, std::vector<FoldRow const*>> sources;
  std::vector<FoldRow const*> dense;
  for (FoldRow const& row : report.rows) {
    sources[source_of(*row.run)].push_back(&row);
    if (row.run->source != "vtrain")
      dense.push_back(&row);
  }
  std::vector<FoldBand> bands{band_of("dense without vtrain", dense)};
  for (auto const& [name, rows] : sources)
    bands.push_back(band_of(name, rows));
  return bands;
}

std::string fold_figures_csv(FoldReport const& report) {
  std::string text;
  for (FoldBand const& band : fold_bands(report)) {
    text += figure_line("family left out", band.value, band.no_family);
    text += figure_line("framework left out", band.value, band.no_framework);
  }
  return text;
}

std::string fold_text(FoldReport const& report) {
  std::vector<std::vector<std::string>> lines{
      {"median / p90", "rows", "nothing fitted", "profiles", "fitted here", "family left out", "framework left out"}};
  for (FoldBand const& band : fold_bands(report))
    lines.push_back({band.value, std::to_string(band.fitted.count), errors_text(band.unfitted),
                     errors_text(band.shipped), errors_text(band.fitted), errors_text(band.no_family),
                     errors_text(band.no_framework)});
  std::string text = fmt::format(
      "Cross-validation of what is fitted on runs, {} families\n\n{}\nFitted here: ", report.families, table(lines));
  for (auto const& [name, clock] : report.parameters.clock)
    text += fmt::format("clock of {} {:.2f}, ", name, clock);
  for (auto const& [name, issue] : report.parameters.issue)
    text += fmt::format("issue in {} {:.0f} us, ", name, 1e6 * issue);
  text.erase(text.size() - 2);
  return text + ".\n";
}

} // namespace foreplan

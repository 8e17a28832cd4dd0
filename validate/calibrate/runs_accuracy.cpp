#include "validate/calibrate/runs_accuracy.hpp"

#include "io/input_error.hpp"
#include "planner/allocator.hpp"
#include "planner/risk.hpp"
#include "report/table.hpp"
#include "validate/calibrate/error_table.hpp"
#include "validate/calibrate/parallel.hpp"
#include "validate/calibrate/profile_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

namespace foreplan {

namespace {

constexpr double gib = 1024.0 * 1024 * 1024;

double log_ratio(JudgedRun const& run) { return std::log(run.predicted / run.run.step); }
bool is_trusted(JudgedRun const& run) { return run.run.trust == "A" || run.run.trust == "B"; }

RunClass class_of(PublishedRun const& run) {
  constexpr double cliff = 68.0 / 80.0; // of the card
  if (run.peak_memory > cliff * 80 * gib && run.cluster.profile.chip.memory.value() < 81 * gib)
    return RunClass::memory_cliff;
  bool const over_nodes = run.plan.tp > run.cluster.profile.node.devices;
  bool const slow = run.cluster.nodes >= 2 && ((run.plan.tp > 1 && run.plan.pp > 1) || over_nodes);
  return run.framework == "nanotron" && slow ? RunClass::slow_mode : RunClass::ordinary;
}

JudgedRun judge(PublishedRun const& run) {
  JudgedRun judged{run, 0, Bytes(0), Bytes(0), class_of(run)};
  judged.predicted = step_time(run.model, run.plan, run.cluster).value();
  for (StagePeak const& peak : stage_peaks(run.model, run.plan)) {
    judged.peak = std::max(judged.peak, Bytes(static_cast<double>(peak.tensors.use.total())));
    judged.needed = std::max(judged.needed, peak.needed);
  }
  return judged;
}

using Rows = std::vector<JudgedRun const*>;

RunBand band_of(std::string by, std::string value, Rows rows) {
  constexpr std::ptrdiff_t shown = 5;
  std::vector<double> ratios;
  for (JudgedRun const* row : rows)
    ratios.push_back(log_ratio(*row));
  std::ranges::stable_sort(rows, std::greater{}, [](auto const* row) { return std::abs(log_ratio(*row)); });
  rows.resize(static_cast<std::size_t>(std::min(shown, std::ssize(rows))));
  return {std::move(by), std::move(value), summarise(ratios), std::move(rows)};
}

void add_bands(std::vector<RunBand>& bands, Rows const& rows, std::string const& by,
               std::function<std::string(JudgedRun const&)> const& value) {
  std::map<std::string, Rows> groups;
  for (JudgedRun const* row : rows)
    groups[value(*row)].push_back(row);
  for (auto const& [name, group] : groups)
    bands.push_back(band_of(by, name, group));
}

// Seconds a micro-batch and tp that plans of other models lost in the slow mode, on 2 to 16 nodes: the median.
double slow_mode_loss_without(std::string const& model, std::vector<JudgedRun> const& rows) {
  constexpr int most_nodes = 16;
  std::vector<double> losses;
  for (JudgedRun const& row : rows)
    if (row.run.model.name != model && row.run.cluster.nodes <= most_nodes &&
        may_be_slow(row.run.plan, row.run.cluster))
      losses.push_back((row.run.step - row.predicted) /
                       (row.run.plan.tp * static_cast<double>(row.run.plan.micro_batches())));
  return losses.empty() ? 0 : quantile(losses, 0.5);
}

struct RankedRun {
  JudgedRun const* row;
  double expected; // s
};

// Kendall's tau-a over all pairs; pairs that one side holds equal count nothing.
double kendall(std::vector<RankedRun> const& rows) {
  int sum = 0, pairs = 0;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = i + 1; j < rows.size(); ++j) {
      double const measured = rows[i].row->run.step - rows[j].row->run.step;
      double const predicted = rows[i].expected - rows[j].expected;
      sum += measured * predicted > 0 ? 1 : measured * predicted < 0 ? -1 : 0;
      ++pairs;
    }
  return pairs > 0 ? static_cast<double>(sum) / pairs : 0;
}

std::vector<RankedRun> ranked(Rows const& group, double loss) {
  std::vector<RankedRun> rows;
  for (JudgedRun const* row : group)
    rows.push_back(
        {row, with_risk(Seconds(row->predicted), row->run.plan, row->run.cluster, row->needed, loss).value()});
  return rows;
}

} // namespace

bool is_scored(JudgedRun const& run) { return run.run_class == RunClass::ordinary && is_trusted(run); }

std::string source_of(PublishedRun const& run) {
  if (run.source != "vtrain")
    return run.source;
  return run.cluster.nodes > 1 ? "vtrain, several nodes" : "vtrain, one node";
}

std::vector<JudgedRun> judge_runs(std::vector<PublishedRun> const& runs) {
  std::vector<JudgedRun> judged(runs.size());
  in_parallel(runs.size(), [&](std::size_t i) { judged[i] = judge(runs[i]); });
  return judged;
}

RunAccuracyReport runs_accuracy(std::string const& data) {
  RunAccuracyReport report;
  report.data = data.empty() ? published_runs_path() : data;
  RunTable table = read_run_table(report.data);
  report.left_out = std::move(table.left_out);
  std::erase_if(table.runs, [](PublishedRun const& run) { return run.step <= 0; });
  report.rows = judge_runs(table.runs);
  return report;
}

std::vector<RunBand> run_bands(std::vector<JudgedRun> const& rows) {
  Rows trusted, untrusted, slow, cliff;
  for (JudgedRun const& row : rows)
    (row.run_class == RunClass::slow_mode      ? slow
     : row.run_class == RunClass::memory_cliff ? cliff
     : is_trusted(row)                         ? trusted
                                               : untrusted)
        .push_back(&row);
  Rows dense;
  std::ranges::copy_if(trusted, std::back_inserter(dense), [](auto const* row) { return row->run.source != "vtrain"; });
  std::vector<RunBand> bands;
  bands.push_back(band_of("all", "trust A and B", trusted));
  bands.push_back(band_of("all", "trust A and B without vtrain", dense));
  bands.push_back(band_of("all", "trust C", untrusted));
  bands.push_back(band_of("all", "memory cliff", cliff));
  bands.push_back(band_of("all", "slow mode", slow));
  add_bands(bands, trusted, "source", [](JudgedRun const& row) { return source_of(row.run); });
  add_bands(bands, trusted, "framework", [](JudgedRun const& row) { return row.run.framework; });
  add_bands(bands, trusted, "chip", [](JudgedRun const& row) { return row.run.chip; });
  add_bands(bands, trusted, "strategy", [](JudgedRun const& row) { return row.run.strategy; });
  add_bands(bands, untrusted, "trust C", [](JudgedRun const& row) { return source_of(row.run); });
  return bands;
}

std::vector<RankedGroup> ranked_groups(std::vector<JudgedRun> const& rows) {
  constexpr std::size_t fewest = 5;
  std::map<std::string, Rows> groups;
  for (JudgedRun const& row : rows)
    if (row.run.source == "nanotron")
      groups[fmt::format("{}, {:4} GPUs, batch {}, {} tokens", row.run.model.name, row.run.plan.world_size(),
                         row.run.plan.global_batch, row.run.plan.sequence_length)]
          .push_back(&row);
  std::vector<RankedGroup> result;
  for (auto const& [name, group] : groups) {
    if (group.size() < fewest)
      continue;
    std::vector<RankedRun> const plans = ranked(group, slow_mode_loss_without(group[0]->run.model.name, rows));
    JudgedRun const* choice = std::ranges::min_element(plans, {}, &RankedRun::expected)->row;
    double const best = (*std::ranges::min_element(group, {}, [](auto const* row) { return row->run.step; }))->run.step;
    result.push_back({name, choice->run.plan.world_size(), static_cast<int>(group.size()), kendall(plans),
                      choice->run.step / best - 1, choice});
  }
  return result;
}

namespace {

std::string row_text(JudgedRun const& row) {
  return fmt::format("{}: {} on {} {}: {}, s {}, batch {}: {:.4g} s predicted, {:.4g} s measured ({:+.1f} %)",
                     row.run.id, row.run.model.name, row.run.plan.world_size(), row.run.chip, describe(row.run.plan),
                     row.run.plan.sequence_length, row.run.plan.global_batch, row.predicted, row.run.step,
                     100 * (row.predicted / row.run.step - 1));
}

// Where the predicted step goes, of the slowest stage.
std::string breakdown_text(JudgedRun const& row) {
  Report const report = simulate(row.run.model, row.run.plan, row.run.cluster, {.segments = true});
  Breakdown const& b = report.breakdown;
  double const all = report.step.value();
  auto share = [&](Seconds part) { return 100 * part.value() / all; };
  return fmt::format("gemm {:.0f} %, attention {:.0f} %, memory bound {:.0f} %, exposed tp {:.0f} %, dp {:.0f} %, "
                     "pp {:.0f} %, host {:.0f} %, bubble {:.0f} %",
                     share(b.compute[0]), share(b.compute[1]), share(b.compute[2]), share(b.exposed_tp),
                     share(b.exposed_dp), share(b.exposed_pp), share(b.host), share(b.bubble));
}

// Every op of a block and of the head: what it takes alone.
std::string kernel_table(PublishedRun const& run) {
  Simulation const simulation = run_plan(run.model, run.plan, run.cluster);
  std::vector<std::vector<std::string>> lines{{"layer", "op", "alone us", "issue us"}};
  for (std::size_t b = 0; b < simulation.folding.blocks.size(); ++b) {
    BlockOrigin const& origin = simulation.folding.blocks[b];
    if (origin.layer_program == nullptr)
      continue;
    std::vector<Item> const& items = simulation.folding.program.blocks[b].items;
    for (std::size_t i = 0; i < items.size(); ++i) {
      Demand const& demand = simulation.folding.program.demands[static_cast<std::size_t>(items[i].demand)];
      lines.push_back({fmt::format("{}, {}", origin.layer_program->name, to_string(origin.kind)), op_of(origin, i).name,
                       fmt::format("{:.1f}", 1e6 * alone_seconds(demand).value()),
                       fmt::format("{:.1f}", 1e6 * demand.issue.value())});
    }
  }
  return '\n' + table(lines);
}

// Repeats of one configuration (notes: accuracy.md; issue 7): by the same software, and by another release.
constexpr Spread repeats{0.014, 0.056};
constexpr Spread releases{0.03, 0.20};

// What is known to be missing in rows of a kind. The first that applies is named.
struct Missing {
  std::string_view what;
  bool (*applies)(JudgedRun const&);
};
constexpr Missing missing[] = {
    {"heads of a size that is no multiple of 8: batched products of unaligned rows",
     [](JudgedRun const& row) { return row.run.model.head_size % 8 != 0; }},
    {"memory near the limit: retries of the allocator",
     [](JudgedRun const& row) { return near_cliff(row.needed, usable_memory(row.run.cluster.profile)); }},
    {"a mode of the network that comes and goes (nothing in the row tells)",
     [](JudgedRun const& row) { return row.run.source == "nanotron" && row.predicted < 0.7 * row.run.step; }},
    {"deterministic kernels, of which no table has times",
     [](JudgedRun const& row) { return row.run.source == "mcore-ci"; }},
    {"allocations of one cluster that differ by up to 40 %; perhaps CUDA_LAUNCH_BLOCKING",
     [](JudgedRun const& row) { return row.run.source == "bigscience-a100"; }},
    {"transfers between stages that look ten times slower than the network",
     [](JudgedRun const& row) {
       return row.run.source == "vtrain" && row.run.cluster.nodes > 1 && row.run.plan.pp > 1 && row.run.plan.tp < 8;
     }},
    {"collectives of tp over nodes",
     [](JudgedRun const& row) { return row.run.plan.tp > row.run.cluster.profile.node.devices; }},
    {"fixed host time of a step and of a transfer, in models that the host bounds",
     [](JudgedRun const& row) { return row.run.source == "vtrain" && row.run.model.hidden <= 2048; }},
};

std::string missing_in(JudgedRun const& row) {
  auto const* const found = std::ranges::find_if(missing, [&](Missing const& m) { return m.applies(row); });
  return found == std::end(missing) ? "not known" : std::string(found->what);
}

// Of the scored rows, one a configuration: repeats err alike.
std::string largest_text(std::vector<JudgedRun> const& rows) {
  constexpr std::size_t shown = 10;
  Rows scored;
  for (JudgedRun const& row : rows)
    if (is_scored(row))
      scored.push_back(&row);
  std::ranges::stable_sort(scored, std::greater{}, [](auto const* row) { return std::abs(log_ratio(*row)); });
  std::string text = "\nThe ten largest errors, and what is missing:\n";
  std::set<std::string> configurations;
  for (JudgedRun const* row : scored) {
    if (!configurations.insert(row->run.config.empty() ? row->run.id : row->run.config).second)
      continue;
    text += fmt::format("  {}\n    missing: {}\n", row_text(*row), missing_in(*row));
    if (configurations.size() == shown)
      break;
  }
  return text;
}

std::string ranking_text(std::vector<JudgedRun> const& rows) {
  std::vector<std::vector<std::string>> lines{{"group", "plans", "tau", "regret", "first choice"}};
  std::vector<double> taus, regrets;
  for (RankedGroup const& group : ranked_groups(rows)) {
    lines.push_back({group.name, std::to_string(group.plans), fmt::format("{:.2f}", group.tau), percent(group.regret),
                     describe(group.choice->run.plan)});
    if (group.gpus <= 128) {
      taus.push_back(group.tau);
      regrets.push_back(group.regret);
    }
  }
  if (taus.empty())
    return "";
  return fmt::format(
      "\nRanking of plans (Ultra-Scale sweep)\n{}Up to 128 GPUs: tau median {:.2f}; regret median {}, p90 "
      "{}, largest {}\n",
      table(lines), quantile(taus, 0.5), percent(quantile(regrets, 0.5)), percent(quantile(regrets, 0.9)),
      percent(quantile(regrets, 1)));
}

} // namespace

std::string run_row_text(std::string const& data, std::string const& id) {
  std::string const path = data.empty() ? published_runs_path() : data;
  for (PublishedRun const& run : read_run_table(path).runs)
    if (run.id == id)
      return row_text(judge(run)) + '\n' + to_text(simulate(run.model, run.plan, run.cluster)) + kernel_table(run);
  throw InputError(fmt::format("{}: run_id {}: must be a row of the table that can be expressed", path, id));
}

std::string run_accuracy_text(RunAccuracyReport const& report) {
  std::string text = fmt::format("Steps of published training runs, {}\n\n", report.data);
  std::vector<RunBand> const bands = run_bands(report.rows);
  std::vector<ErrorLine> lines;
  for (RunBand const& band : bands)
    lines.push_back({band.by, band.value, band.errors});
  text += error_table("rows", lines, repeats);
  text += fmt::format(
      "in spreads: of repeats by the same software, {} and {}; across releases repeats differ by {} and {}\n",
      percent(repeats.median), percent(repeats.p90), percent(releases.median), percent(releases.p90));
  text += ranking_text(report.rows);
  text += largest_text(report.rows);
  for (RunBand const& band : bands) {
    if (band.by != "source" || band.worst.empty())
      continue;
    text += fmt::format("\nWorst of {}:\n", band.value);
    for (JudgedRun const* row : band.worst)
      text += fmt::format("  {}\n    {}\n", row_text(*row), breakdown_text(*row));
  }
  text += "\nRows that cannot be expressed:\n";
  for (auto const& [why, count] : report.left_out)
    text += fmt::format("  {:5} {}\n", count, why);
  return text;
}

std::string run_figures_csv(RunAccuracyReport const& report) {
  std::string text(figures_header);
  for (RunBand const& band : run_bands(report.rows))
    if (band.errors.count > 0 && (band.by == "all" || band.by == "source" || band.by == "framework"))
      text += figure_line(band.by, band.value, band.errors);
  return text;
}

std::string run_accuracy_json(RunAccuracyReport const& report) {
  std::string text = fmt::format("{{\"format\": \"foreplan run accuracy 1\", \"data\": {}, \"rows\": [",
                                 json_quoted(report.data));
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    JudgedRun const& row = report.rows[i];
    text += fmt::format(
        "{}\n  {{\"id\": {}, \"family\": {}, \"source\": {}, \"trust\": {}, \"chip\": {}, \"framework\": {}, "
        "\"strategy\": {}, \"class\": {}, \"model\": {}, \"plan\": {}, \"gpus\": {}, \"measured\": {}, "
        "\"predicted\": {}, \"peak_bytes\": {}, \"measured_peak_bytes\": {}}}",
        i == 0 ? "" : ",", json_quoted(row.run.id), json_quoted(row.run.family), json_quoted(row.run.source),
        json_quoted(row.run.trust), json_quoted(row.run.chip), json_quoted(row.run.framework),
        json_quoted(row.run.strategy), static_cast<int>(row.run_class), json_quoted(row.run.model.name),
        json_quoted(describe(row.run.plan)), row.run.plan.world_size(), row.run.step, row.predicted, row.peak.value(),
        row.run.peak_memory);
  }
  text += "\n], \"left_out\": {";
  bool first = true;
  for (auto const& [why, count] : report.left_out) {
    text += fmt::format("{}{}: {}", first ? "" : ", ", json_quoted(why), count);
    first = false;
  }
  return text + "}}\n";
}

} // namespace foreplan

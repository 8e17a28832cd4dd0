#include "validate/compare_run.hpp"

#include "io/json_reader.hpp"
#include "plan/read_plan.hpp"
#include "program/amounts.hpp"
#include "report/table.hpp"
#include "units/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace foreplan {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

constexpr double longest_day = 86400; // s

TimelineEntry read_entry(JsonReader const& reader) {
  std::vector<JsonReader> const values = reader.elements();
  if (values.size() != 5)
    reader.fail("must be [use, item, arrival, start, end]");
  return {static_cast<std::int32_t>(values[0].integer(0, 1 << 30)),
          static_cast<std::int32_t>(values[1].integer(0, 1 << 30)), values[2].number(-longest_day, longest_day),
          values[3].number(-longest_day, longest_day), values[4].number(-longest_day, longest_day)};
}

MeasuredRank read_rank(JsonReader const& reader) {
  constexpr std::int64_t most = std::int64_t{1} << 60;
  MeasuredRank rank{reader["peak_bytes"].integer(0, most), {}};
  for (JsonReader const& event : reader["entries"].elements())
    rank.entries.push_back(read_entry(event));
  return rank;
}

// The op behind an event of a class.
Op const& op_of(Folding const& folding, std::size_t rank_class, TimelineEntry const& event) {
  Use const& use = folding.program.classes[rank_class].uses[at(event.use)];
  BlockOrigin const& origin = folding.blocks[at(use.block)];
  return op_of(origin, at(event.item));
}

std::string category_of(Op const& op) {
  if (is_collective(op.kind))
    return to_string(op.group.axes) + " communication";
  if (is_communication(op.kind))
    return "pp communication";
  return std::string(to_string(kernel_class(op.kind)));
}

using Times = std::map<std::string, ComparedTime>;

void add(Times& times, std::string const& name, double predicted, double measured, std::int64_t count) {
  ComparedTime& time = times[name];
  time.name = name;
  time.predicted += predicted;
  time.measured += measured;
  time.count += count;
}

std::vector<ComparedTime> longest_first(Times const& times, double ranks) {
  std::vector<ComparedTime> result;
  for (auto const& [name, time] : times)
    result.push_back({name, time.predicted / ranks, time.measured / ranks, time.count});
  std::stable_sort(result.begin(), result.end(), [](ComparedTime const& a, ComparedTime const& b) {
    return std::max(a.predicted, a.measured) > std::max(b.predicted, b.measured);
  });
  return result;
}

// Class of each rank in an unfolded prediction.
std::vector<std::size_t> classes_by_rank(Prediction const& prediction) {
  std::vector<std::size_t> classes(prediction.folding.classes.size());
  for (std::size_t i = 0; i < classes.size(); ++i)
    classes.at(prediction.folding.classes[i].representative.index()) = i;
  return classes;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

// Ranks whose op kinds take longer than the median of the others of their stage: by a quarter, and by a hundredth of the step.
std::vector<Outlier> outliers_of(std::map<std::pair<int, std::string>, std::map<int, double>> const& seconds,
                                 double step) {
  constexpr double least_ratio = 1.25, least_share = 0.01;
  std::vector<Outlier> outliers;
  for (auto const& [key, by_rank] : seconds)
    for (auto const& [rank, own] : by_rank) {
      std::vector<double> others;
      for (auto const& [other, value] : by_rank)
        if (other != rank)
          others.push_back(value);
      if (others.empty())
        continue;
      double const usual = median(others);
      if (own > least_ratio * usual && own - usual > least_share * step)
        outliers.push_back({rank, key.second, own / usual, own - usual});
    }
  std::sort(outliers.begin(), outliers.end(), [](Outlier const& a, Outlier const& b) { return a.seconds > b.seconds; });
  return outliers;
}

std::string percent(double predicted, double measured) {
  return measured > 0 ? fmt::format("{:+.1f} %", 100 * (predicted / measured - 1)) : "-";
}

std::vector<std::string> row(ComparedTime const& time, double step) {
  return {time.name,
          std::to_string(time.count),
          to_string(Seconds(time.predicted)),
          to_string(Seconds(time.measured)),
          percent(time.predicted, time.measured),
          fmt::format("{:.1f} %", 100 * std::abs(time.predicted - time.measured) / step)};
}

std::string times_table(std::string const& heading, std::vector<ComparedTime> const& times, double step) {
  constexpr double too_little = 0.002; // of the step: such rows say nothing
  std::vector<std::vector<std::string>> rows{{heading, "ops", "predicted", "measured", "difference", "of the step"}};
  for (ComparedTime const& time : times)
    if (std::max(time.predicted, time.measured) > too_little * step)
      rows.push_back(row(time, step));
  return table(rows);
}

std::string where_of(Folding const& folding, std::size_t rank_class, TimelineEntry const& event) {
  UseOrigin const& origin = folding.classes[rank_class].uses[at(event.use)];
  return origin.layer < 0 ? "" : fmt::format("layer {}", origin.layer);
}

TraceRank trace_rank(Prediction const& prediction, std::size_t rank_class, std::vector<TimelineEntry> const& entries,
                     Rank shown_as, std::string label) {
  TraceRank rank{shown_as, std::move(label), {}};
  for (TimelineEntry const& event : entries) {
    Op const& op = op_of(prediction.folding, rank_class, event);
    if (op.kind == OpKind::wait)
      continue;
    TraceKernel kernel;
    kernel.name = std::string(to_string(op.kind));
    kernel.op = op.name;
    kernel.where = where_of(prediction.folding, rank_class, event);
    kernel.stream = static_cast<int>(op.stream);
    kernel.start = event.start;
    kernel.end = event.end;
    kernel.issue_begin = kernel.issue_end = event.arrival;
    rank.kernels.push_back(std::move(kernel));
  }
  return rank;
}

} // namespace

double MeasuredRun::spread() const {
  auto const [shortest, longest] = std::minmax_element(repeats.begin(), repeats.end());
  return (*longest - *shortest) / step;
}

MeasuredRun read_run(std::string const& path, Program const& program) {
  JsonReader const reader = JsonReader::read_file(path, "foreplan run 1");
  if (read_plan(reader["plan"]) != program.plan)
    reader["plan"].fail("must be the plan that it is compared with: " + describe(program.plan));
  MeasuredRun run;
  run.description = fmt::format("{}, {}, {} ranks a node of {} threads on {} cores", reader["date"].text(),
                                reader["mpi"].text(), reader["ranks_per_node"].integer(1, 1 << 20),
                                reader["threads"].integer(1, 1 << 20), reader["cores"].integer(1, 1 << 20));
  run.step = reader["step_s"]["median"].number(0, longest_day);
  for (JsonReader const& repeat : reader["step_s"]["repeats"].elements())
    run.repeats.push_back(repeat.number(0, longest_day));
  for (JsonReader const& rank : reader["ranks"].elements())
    run.ranks.push_back(read_rank(rank));
  if (static_cast<int>(run.ranks.size()) != program.plan.world_size())
    reader["ranks"].fail(fmt::format("must be {}", program.plan.world_size()));
  return run;
}

RunComparison compare_run(Prediction const& prediction, MeasuredRun const& run) {
  RunComparison result;
  result.step = {"step", prediction.timeline.step.value(), run.step, 1};
  result.spread = run.spread();
  Times categories, ops;
  std::map<std::pair<int, std::string>, std::map<int, double>> seconds; // measured: [stage, op kind][rank]
  std::vector<std::size_t> const classes = classes_by_rank(prediction);
  for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
    std::size_t const own = classes.at(rank);
    Stage const stage = prediction.folding.classes[own].stage;
    auto const count = [&](std::vector<TimelineEntry> const& entries, bool measured) {
      for (TimelineEntry const& event : entries) {
        Op const& op = op_of(prediction.folding, own, event);
        if (op.kind == OpKind::wait)
          continue;
        double const taken = event.end - event.start;
        std::string const kind(to_string(op.kind));
        add(ops, kind, measured ? 0 : taken, measured ? taken : 0, measured ? 1 : 0);
        add(categories, category_of(op), measured ? 0 : taken, measured ? taken : 0, measured ? 1 : 0);
        if (measured)
          seconds[{stage.value(), kind}][static_cast<int>(rank)] += taken;
      }
    };
    count(prediction.timeline.classes[own], false);
    count(run.ranks[rank].entries, true);
    result.peaks.push_back({static_cast<int>(rank), prediction.peaks[at(stage.value())], run.ranks[rank].peak});
  }
  auto const ranks = static_cast<double>(run.ranks.size());
  result.categories = longest_first(categories, ranks);
  result.ops = longest_first(ops, ranks);
  result.outliers = outliers_of(seconds, run.step);
  return result;
}

bool within(RunComparison const& comparison, Tolerance tolerance) {
  bool const memory = std::all_of(comparison.peaks.begin(), comparison.peaks.end(),
                                  [&](RunComparison::Peak const& peak) {
                                    return std::abs(static_cast<double>(peak.predicted - peak.measured)) <=
                                           tolerance.memory * static_cast<double>(peak.measured);
                                  });
  return memory && std::abs(comparison.step.predicted / comparison.step.measured - 1) <= tolerance.step;
}

std::string to_text(RunComparison const& comparison) {
  double const step = comparison.step.measured;
  std::string text = fmt::format("step: predicted {}, measured {} (spread of the repeats {:.1f} %): {}\n\n",
                                 to_string(Seconds(comparison.step.predicted)), to_string(Seconds(step)),
                                 100 * comparison.spread, percent(comparison.step.predicted, step));
  text += times_table("category", comparison.categories, step) + '\n' + times_table("op", comparison.ops, step) + '\n';
  std::vector<std::vector<std::string>> rows{{"peak memory", "predicted", "measured", "difference"}};
  constexpr std::size_t most_rows = 16;
  for (std::size_t i = 0; i < std::min(comparison.peaks.size(), most_rows); ++i) {
    RunComparison::Peak const& peak = comparison.peaks[i];
    auto const predicted = static_cast<double>(peak.predicted), measured = static_cast<double>(peak.measured);
    rows.push_back({fmt::format("rank {}", peak.rank), to_string(Bytes(predicted)), to_string(Bytes(measured)),
                    percent(predicted, measured)});
  }
  text += table(rows);
  for (Outlier const& outlier : comparison.outliers)
    text += fmt::format("\nrank {}'s {} ops are {:.1f}x slower than those of the other ranks of its stage ({} a step)",
                        outlier.rank, outlier.op, outlier.ratio, to_string(Seconds(outlier.seconds)));
  return text + (comparison.outliers.empty() ? "" : "\n");
}

std::vector<TraceRank> side_by_side(Prediction const& prediction, MeasuredRun const& run) {
  std::vector<TraceRank> ranks;
  std::vector<std::size_t> const classes = classes_by_rank(prediction);
  auto const world = static_cast<std::int64_t>(run.ranks.size());
  for (std::int64_t rank = 0; rank < world; ++rank) {
    std::size_t const own = classes.at(at(rank));
    ranks.push_back(trace_rank(prediction, own, prediction.timeline.classes[own], Rank(rank),
                               fmt::format("rank {}, predicted", rank)));
    ranks.push_back(trace_rank(prediction, own, run.ranks[at(rank)].entries, Rank(rank + world),
                               fmt::format("rank {}, measured", rank)));
  }
  return ranks;
}

} // namespace foreplan

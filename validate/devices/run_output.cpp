#include "validate/devices/run_output.hpp"

#include "plan/read_plan.hpp"
#include "units/text.hpp"
#include "validate/devices/measured_timeline.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <ctime>
#include <map>
#include <set>
#include <tuple>

namespace foreplan {
namespace {

using Json = nlohmann::ordered_json;

std::string_view name_of(Storage storage) {
  return storage == Storage::fp64 ? "fp64" : storage == Storage::fp32 ? "fp32" : "plan";
}

std::string_view name_of(Part part) {
  switch (part) {
    case Part::forward: return "forward";
    case Part::input_gradient: return "input gradient";
    case Part::weight_gradient: return "weight gradient";
    case Part::step: return "step";
  }
  return "?";
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string const version(text, static_cast<std::size_t>(length));
  return version.substr(0, version.find(','));
}

std::string today() {
  std::time_t const seconds = std::time(nullptr);
  std::tm day{};
  gmtime_r(&seconds, &day);
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

StageProgram const& stage_of(Program const& program, std::size_t rank) {
  return program
      .stages[static_cast<std::size_t>(coordinate_of(program.plan, Rank(static_cast<std::int64_t>(rank))).pp)];
}

// Seconds of a rank's ops: medians over the repeats, summed over the instances of an op.
struct OpSum {
  std::int64_t count = 0;
  double seconds = 0;
};
using OpKey = std::tuple<std::string, OpKind, Part, Stream>;

std::map<OpKey, OpSum> sums_of(Program const& program, Run const& run, std::size_t rank) {
  std::map<OpKey, OpSum> sums;
  std::vector<Instance> const instances = instances_of(program, stage_of(program, rank));
  for (std::size_t i = 0; i < instances.size(); ++i) {
    Op const& op = *instances[i].op;
    if (op.kind == OpKind::wait)
      continue;
    // "reduce bucket 3" and "reduce bucket 4" are one op of many instances
    std::string const name = instances[i].layer < 0 ? op.name.substr(0, op.name.find_last_not_of(" 0123456789") + 1)
                                                    : op.name;
    OpSum& sum = sums[{name, op.kind, op.part, op.stream}];
    ++sum.count;
    sum.seconds += run.ranks[rank].seconds[i];
  }
  return sums;
}

struct StreamSeconds {
  double compute = 0;
  double communication = 0;
};
StreamSeconds stream_seconds(Program const& program, Run const& run, std::size_t rank) {
  StreamSeconds seconds;
  for (auto const& [key, sum] : sums_of(program, run, rank))
    (is_communication(std::get<OpKind>(key)) ? seconds.communication : seconds.compute) += sum.seconds;
  return seconds;
}

Json json_of(Program const& program, Run const& run, Timeline const& timeline, std::size_t rank) {
  RankRun const& own = run.ranks[rank];
  Coordinate const where = coordinate_of(program.plan, Rank(static_cast<std::int64_t>(rank)));
  Json ops = Json::array();
  for (auto const& [key, sum] : sums_of(program, run, rank))
    ops.push_back({{"op", std::get<std::string>(key)},
                   {"kind", to_string(std::get<OpKind>(key))},
                   {"part", name_of(std::get<Part>(key))},
                   {"stream", to_string(std::get<Stream>(key))},
                   {"count", sum.count},
                   {"seconds", sum.seconds}});
  Json entries = Json::array();
  for (TimelineEntry const& entry : timeline.classes[rank])
    entries.push_back({entry.use, entry.item, entry.arrival, entry.start, entry.end});
  return {{"rank", rank},
          {"stage", where.pp},
          {"tp", where.tp},
          {"cp", where.cp},
          {"dp", data_index(program.plan, where)},
          {"host", own.host},
          {"peak_bytes", own.peak},
          {"predicted_peak_bytes", own.predicted_peak},
          {"pool_bytes", own.pool},
          {"clock_offset_s", own.clock_offset},
          {"clock_drift_s", own.clock_drift},
          {"ops", std::move(ops)},
          {"entries", std::move(entries)}};
}

// All its fields, as read_plan() reads them within another file.
Json json_of(Plan const& plan) {
  Json json = Json::parse(plan_json(plan));
  json.erase("format");
  return json;
}

// What the cores allow: every rank has the threads of its kernels, and one more that drives communication.
std::string cores_text(Program const& program, RunSetup const& setup) {
  int const kernels = setup.ranks_of_node * setup.threads;
  std::string text = fmt::format("{} rank{} x {} thread{} on {} core{}", setup.ranks_of_node,
                                 setup.ranks_of_node == 1 ? "" : "s", setup.threads, setup.threads == 1 ? "" : "s",
                                 setup.cores, setup.cores == 1 ? "" : "s");
  if (kernels > setup.cores)
    return text + ": the ranks take turns, so times say little of real devices";
  if (program.plan.world_size() > 1 && kernels + setup.ranks_of_node > setup.cores)
    return text + ": no core is left for communication, so what overlaps slows the kernels down";
  return text;
}

} // namespace

std::string to_text(Program const& program, Run const& run, RunSetup const& setup) {
  auto const seconds = [](double value) { return to_string(Seconds(value)); };
  std::string text = fmt::format("{}, {}\n{}, storage: {}\n\n", program.model.name, describe(program.plan),
                                 cores_text(program, setup), name_of(setup.storage));
  text += fmt::format("step    {} (median of {}; 95 % interval {} to {}{})\n", seconds(run.step.value),
                      run.steps.size(), seconds(run.step.low), seconds(run.step.high),
                      run.settled ? "" : ", not settled");
  text += fmt::format("loss    {:.6f} after step 1, {:.6f} after step {}\n\n", run.losses.front(), run.losses.back(),
                      run.losses.size());
  text += fmt::format("{:>5} {:>6} {:>10} {:>14} {:>12} {:>12} {:>12}\n", "rank", "stage", "kernels", "communication",
                      "peak", "predicted", "pool");
  bool const as_planned = setup.storage == Storage::as_planned; // the prediction is for the plan's types
  constexpr std::size_t most_rows = 16;
  for (std::size_t rank = 0; rank < std::min(run.ranks.size(), most_rows); ++rank) {
    StreamSeconds const spent = stream_seconds(program, run, rank);
    auto const bytes = [](std::int64_t value) { return to_string(Bytes(static_cast<double>(value))); };
    text += fmt::format("{:>5} {:>6} {:>10} {:>14} {:>12} {:>12} {:>12}\n", rank, stage_of(program, rank).stage.value(),
                        seconds(spent.compute), seconds(spent.communication), bytes(run.ranks[rank].peak),
                        as_planned ? bytes(run.ranks[rank].predicted_peak) : "-", bytes(run.ranks[rank].pool));
  }
  if (run.ranks.size() > most_rows)
    text += fmt::format("({} more ranks: --json)\n", run.ranks.size() - most_rows);
  if (run.ranks.size() == 1) {
    double kernels = 0, step = 0;
    for (OpTimes const& op : run.ranks[0].times) {
      kernels += op.end - op.start;
      step = std::max(step, op.end);
    }
    text += fmt::format("\nBetween kernels: {} ({:.2f} % of their sum, in the median step)\n", seconds(step - kernels),
                        100 * (step / kernels - 1));
  }
  return text;
}

void write_json(std::ostream& out, Program const& program, Run const& run, RunSetup const& setup) {
  Timeline const timeline = timeline_of(program, run);
  std::set<std::string> hosts;
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
    ranks.push_back(json_of(program, run, timeline, rank));
    hosts.insert(run.ranks[rank].host);
  }
  Json const json{{"format", "foreplan run 1"},
                  {"date", today()},
                  {"mpi", mpi_version()},
                  {"hosts", hosts},
                  {"ranks_per_node", setup.ranks_of_node},
                  {"threads", setup.threads},
                  {"cores", setup.cores},
                  {"storage", name_of(setup.storage)},
                  {"model", program.model.name},
                  {"plan", json_of(program.plan)},
                  {"step_s",
                   {{"median", run.step.value},
                    {"low", run.step.low},
                    {"high", run.step.high},
                    {"settled", run.settled},
                    {"repeats", run.steps}}},
                  {"losses", run.losses},
                  {"ranks", std::move(ranks)}};
  out << json.dump() << '\n';
}

void write_trace(std::ostream& out, Program const& program, Run const& run) {
  TraceJob const job{fmt::format("CPU of {}", run.ranks.front().host), program.plan.world_size(), run.step.value, "mpi",
                     "foreplan-run: a measurement"};
  write_chrome_trace(out, job, trace_of(program, run));
}

} // namespace foreplan

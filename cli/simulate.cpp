#include "planner/simulate.hpp"
#include "cli/command.hpp"
#include "cli/plan_options.hpp"
#include "engine/engine.hpp"
#include "engine/expand_program.hpp"
#include "planner/details.hpp"
#include "program/compile.hpp"
#include "program/verifier.hpp"
#include "report/table.hpp"
#include "units/text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <iostream>

namespace foreplan {

namespace {

std::string proof(Program const& program) {
  std::vector<Finding> const findings = verify(program);
  if (findings.empty())
    return "\nVerified: no race, no missing communication, no use of memory that is not there.\n";
  std::string text = "\nNot a correct training step:\n";
  for (Finding const& finding : findings)
    text += fmt::format("  stage {}: {}\n", finding.stage.value(), finding.text);
  return text;
}

// The step with its collectives as rings: as one transfer each, and as the point-to-point steps that these stand for.
std::string expansion(Program const& program, Cluster const& cluster) {
  auto step = [&](RingForm form) {
    return run_fast(expand_program(program, cluster, form), {.keep_entries = false}).step;
  };
  Seconds const transfers = step(RingForm::transfer), steps = step(RingForm::steps);
  return fmt::format(
      "\nWith every tp and dp collective a ring, all ranks, without interference: {} a step as single transfers, "
      "{} as point-to-point steps ({:+.2f} %).\n",
      to_string(transfers), to_string(steps), 100 * (steps / transfers - 1));
}

std::string pass_times(Model const& model, Plan const& plan) {
  std::vector<PassTime> times;
  compile(model, plan, {}, &times);
  std::vector<std::vector<std::string>> rows{{"pass", "time"}};
  for (PassTime const& time : times)
    rows.push_back({time.name, to_string(time.time)});
  return '\n' + table(rows);
}

// Every rank is an item's worth of memory and time: more than this is not what a check of the folding needs.
void refuse_too_many(char const* option, int ranks, int most) {
  if (ranks > most)
    throw InputError(
        fmt::format("{}: simulates every rank; the plan has {}, at most {} are possible", option, ranks, most));
}

void write_trace_file(std::filesystem::path const& path, Simulation const& run, Cluster const& cluster, int stage) {
  std::ofstream file(path);
  write_trace(file, run, cluster, stage);
  file.close();
  if (!file)
    throw InputError(fmt::format("--trace {}: cannot be written", path.string()));
}

// One file for all stages, or into a folder (that exists, or a name ending in "/") one for each, as profilers do.
void write_traces(std::string const& where, Simulation const& run, Cluster const& cluster) {
  namespace fs = std::filesystem;
  if (!where.ends_with('/') && !fs::is_directory(where))
    return write_trace_file(where, run, cluster, -1);
  std::error_code error;
  fs::create_directories(where, error);
  for (int stage = 0; stage < run.program->plan.pp; ++stage)
    write_trace_file(fs::path(where) / fmt::format("stage{}.json", stage), run, cluster, stage);
}

// What a proposed layout gains.
std::string balance_text(Model const& model, Plan plan, Cluster const& cluster) {
  Seconds const balanced = step_time(model, plan, cluster);
  plan.layout.clear();
  Seconds const even = step_time(model, plan, cluster);
  return wrapped("", fmt::format("By the layout {} a step; by even parts {}.", to_string(balanced), to_string(even)));
}

} // namespace

int run_simulate(std::vector<std::string> const& arguments) {
  cxxopts::Options options("foreplan simulate", "Predicts one plan: step time, where it goes, memory.");
  auto text = [] { return cxxopts::value<std::string>(); };
  add_plan_options(options);
  // clang-format off
  options.add_options()
      ("engine", "fast or simgrid", text()->default_value("fast"))
      ("segments", "runs of layers as one item, not kernel by kernel")
      ("unfold", "simulate every rank, not one of each class")
      ("no-interference", "overlapping work does not slow each other")
      ("expand", "also run collectives as rings of point-to-point steps, to compare (up to 64 ranks)")
      ("verify", "also prove the program well formed")
      ("pass-times", "also print how long each pass of the compiler takes")
      ("headroom", "share of the memory that must stay free", text()->default_value("14 %"))
      ("trace", "also write a trace for Perfetto and HolisticTraceAnalysis: a file, or a folder for a file a stage", text())
      ("details", "with --json: also every pass, memory over the issue order, places of the ranks")
      ("json", "print JSON");
  // clang-format on
  auto const parsed = parse(options, arguments);
  if (!parsed)
    return 0;
  auto const [model, plan, cluster] = plan_case_of(*parsed);
  SimulateOptions simulation;
  simulation.engine = choice<Engine, 2>(*parsed, "engine", {{{"fast", Engine::fast}, {"simgrid", Engine::simgrid}}});
  simulation.segments = parsed->count("segments") > 0;
  simulation.unfold = parsed->count("unfold") > 0;
  simulation.interference = parsed->count("no-interference") == 0;
  simulation.headroom = share(*parsed, "headroom");
  if (simulation.unfold)
    refuse_too_many("--unfold", plan.world_size(), simulation.engine == Engine::simgrid ? 512 : 2048);
  if (parsed->count("expand") > 0)
    refuse_too_many("--expand", plan.world_size(), most_expanded_ranks);

  Simulation const run = run_plan(model, plan, cluster, simulation);
  Report const report = report_of(run, cluster, simulation);
  if (parsed->count("trace") > 0)
    write_traces((*parsed)["trace"].as<std::string>(), run, cluster);
  if (parsed->count("json") > 0) {
    nlohmann::ordered_json json{{"format", "foreplan report 1"}};
    json.update(to_json(report));
    if (parsed->count("details") > 0)
      json["details"] = to_json(details_of(run, cluster));
    std::cout << json.dump(2) << '\n';
  } else {
    std::cout << to_text(report);
    if (asks_for_balance(*parsed) && plan.pp > 1)
      std::cout << '\n' << balance_text(model, plan, cluster);
    if (parsed->count("expand") > 0)
      std::cout << expansion(*run.program, cluster);
    if (parsed->count("verify") > 0)
      std::cout << proof(*run.program);
    if (parsed->count("pass-times") > 0)
      std::cout << pass_times(model, plan);
  }
  return report.fit == Fit::too_large ? 1 : 0;
}

} // namespace foreplan

// foreplan validate: runs a plan on this machine and compares what was predicted.
#include "cli/child_process.hpp"
#include "cli/command.hpp"
#include "cli/plan_options.hpp"
#include "planner/simulate.hpp"
#include "timeline/memory.hpp"
#include "validate/calibrate/topology.hpp"
#include "validate/compare_run.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <iostream>

namespace foreplan {
namespace {

// Runs the plan under mpirun; its measurement is then in `json`.
void run_plan_here(cxxopts::ParseResult const& parsed, PlanCase const& what, std::string const& json) {
  auto const text = [&](char const* name) { return parsed[name].as<std::string>(); };
  int const ranks = what.plan.world_size();
  int const threads = what.cluster.profile.chip.multiprocessors; // of a chip of this machine's profile
  std::vector<std::string> command{sibling_program("foreplan-run"),
                                   text("plan"),
                                   "--model",
                                   text("model"),
                                   "--threads",
                                   std::to_string(threads),
                                   "--warm-up",
                                   text("warm-up"),
                                   "--steps",
                                   text("repeats"),
                                   "--json",
                                   json};
  if (std::string const mpirun = text("mpirun"); mpirun.empty()) {
    command = under_mpirun(ranks, threads, detect_topology().cores, command);
  } else {
    std::vector<std::string> words{"sh", "-c", mpirun + " \"$@\"", "sh"};
    words.insert(words.end(), command.begin(), command.end());
    command = words;
  }
  if (int const code = run_child(command); code != 0)
    throw InputError(fmt::format("foreplan-run has failed with exit code {}", code));
}

nlohmann::ordered_json to_json(ComparedTime const& time) {
  return {{"name", time.name}, {"count", time.count}, {"predicted_s", time.predicted}, {"measured_s", time.measured}};
}

nlohmann::ordered_json to_json(RunComparison const& comparison, MeasuredRun const& run, PlanCase const& what,
                               bool fits) {
  auto const list = [](auto const& values) {
    auto array = nlohmann::ordered_json::array();
    for (ComparedTime const& value : values)
      array.push_back(to_json(value));
    return array;
  };
  nlohmann::ordered_json json{{"format", "foreplan validation 1"},
                              {"model", what.model.name},
                              {"plan", describe(what.plan)},
                              {"hardware", what.cluster.profile.name},
                              {"run", run.description},
                              {"step", to_json(comparison.step)},
                              {"repeats_s", run.repeats},
                              {"spread", comparison.spread},
                              {"within_tolerance", fits},
                              {"categories", list(comparison.categories)},
                              {"ops", list(comparison.ops)}};
  json["peaks"] = nlohmann::ordered_json::array();
  for (RunComparison::Peak const& peak : comparison.peaks)
    json["peaks"].push_back(
        {{"rank", peak.rank}, {"predicted_bytes", peak.predicted}, {"measured_bytes", peak.measured}});
  json["outliers"] = nlohmann::ordered_json::array();
  for (Outlier const& outlier : comparison.outliers)
    json["outliers"].push_back(
        {{"rank", outlier.rank}, {"op", outlier.op}, {"ratio", outlier.ratio}, {"seconds", outlier.seconds}});
  return json;
}

void write_trace_file(std::string const& path, Prediction const& prediction, MeasuredRun const& run,
                      PlanCase const& what) {
  std::ofstream file(path);
  write_chrome_trace(file,
                     {what.cluster.profile.chip.name, 2 * what.plan.world_size(), run.step, "mpi",
                      "foreplan validate: every rank as predicted and as measured"},
                     side_by_side(prediction, run));
  file.close();
  if (!file)
    throw InputError(fmt::format("--trace {}: cannot be written", path));
}

} // namespace

int run_validate(std::vector<std::string> const& arguments) {
  cxxopts::Options options("foreplan validate", "Runs a plan on this machine and compares predicted with measured.");
  auto text = [] { return cxxopts::value<std::string>(); };
  add_plan_options(options);
  options.positional_help("[PLAN.json]");
  // clang-format off
  options.add_options()
      ("warm-up", "steps before the first that is measured", text()->default_value("2"))
      ("repeats", "measured steps", text()->default_value("5"))
      ("mpirun", "what starts the processes, in place of mpirun: \"srun -n 16\"", text()->default_value(""))
      ("run", "compare this measurement of foreplan-run --json, and run nothing", text()->default_value(""))
      ("tolerance", "of the step's time: beyond it the exit code is 1", text()->default_value("15 %"))
      ("trace", "also write a trace of all ranks, predicted beside measured: a file", text()->default_value(""))
      ("json", "print JSON");
  // clang-format on
  std::vector<std::string> words = arguments;
  if (!words.empty() && !words[0].starts_with('-'))
    words.insert(words.begin(), "--plan");
  auto const parsed = parse(options, words);
  if (!parsed)
    return 0;
  required_text(*parsed, "plan");
  PlanCase const what = plan_case_of(*parsed);
  Tolerance const tolerance{.step = share(*parsed, "tolerance")};

  Simulation const simulation = run_plan(what.model, what.plan, what.cluster, {.segments = false, .unfold = true});
  std::vector<std::int64_t> peaks;
  for (StageProgram const& stage : simulation.program->stages)
    peaks.push_back(memory_of(*simulation.program, stage).peak.use.total());
  Prediction const prediction{*simulation.program, simulation.folding, simulation.timeline, peaks};

  std::string measured = (*parsed)["run"].as<std::string>();
  TemporaryFile const file;
  if (measured.empty()) {
    measured = file.path();
    run_plan_here(*parsed, what, measured);
  }
  MeasuredRun const run = read_run(measured, *simulation.program);
  RunComparison const comparison = compare_run(prediction, run);
  bool const fits = within(comparison, tolerance);
  if (parsed->count("json") > 0)
    std::cout << to_json(comparison, run, what, fits).dump(2) << '\n';
  else
    std::cout << fmt::format("{}, {}\n{}\n\n", what.model.name, describe(what.plan), run.description)
              << to_text(comparison)
              << fmt::format("\n{} {:.0f} % of the step and {:.0f} % of memory.\n", fits ? "Within" : "NOT within",
                             100 * tolerance.step, 100 * tolerance.memory);
  if (std::string const trace = (*parsed)["trace"].as<std::string>(); !trace.empty())
    write_trace_file(trace, prediction, run, what);
  return fits ? 0 : 1;
}

} // namespace foreplan

// Items a second, time and peak memory of both engines on synthetic pipeline steps, on one core.
#include "bench/plan_steps.hpp"
#include "engine/engine.hpp"
#include "tests/engine/schedule_program.hpp"

#include <chrono>
#include <cxxopts.hpp>
#include <exception>
#include <fmt/format.h>
#include <string>
#include <sys/resource.h>

using namespace foreplan;
using testing::Pipeline;

namespace {

double peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The best of `repeats` runs: what the machine can do when nobody else uses it.
void measure(std::string const& name, FoldedProgram const& program,
             Timeline (*engine)(FoldedProgram const&, RunOptions), std::string const& engine_name, int repeats) {
  double best = 1e300;
  Timeline timeline;
  for (int r = 0; r < repeats; ++r) {
    timeline = {};
    auto const begin = std::chrono::steady_clock::now();
    timeline = engine(program, {});
    best = std::min(best, seconds_since(begin));
  }
  fmt::print("{:<34} {:<8} {:>10} {:>10.2f} {:>10.3f} {:>9.0f}  {:.9f}\n", name, engine_name, timeline.items,
             best * 1e3, static_cast<double>(timeline.items) / best / 1e6, peak_megabytes(), timeline.step.value());
}

void run(int argc, char** argv) {
  cxxopts::Options options("bench_engines", "Items a second of the engines on synthetic 1F1B steps");
  options.add_options()("stages", "of the pipeline", cxxopts::value<int>()->default_value("16"))(
      "micro-batches", "of the step", cxxopts::value<int>()->default_value("128"))(
      "layers", "layers of a stage", cxxopts::value<int>()->default_value("8"))(
      "repeats", "runs of each case; the best counts", cxxopts::value<int>()->default_value("5"))(
      "engine", "fast, simgrid or both", cxxopts::value<std::string>()->default_value("both"))("help", "");
  auto const arguments = options.parse(argc, argv);
  if (arguments.count("help") != 0) {
    fmt::print("{}\n", options.help());
    return;
  }
  auto const engine = arguments["engine"].as<std::string>();
  int const repeats = arguments["repeats"].as<int>();
  Pipeline const base{.stages = arguments["stages"].as<int>(),
                      .micro_batches = arguments["micro-batches"].as<int>(),
                      .layers = arguments["layers"].as<int>()};
  fmt::print("{} stages, {} micro-batches, {} layers a stage; peak memory is the process's so far\n{:<34} {:<8} {:>10} "
             "{:>10} {:>10} {:>9}  {}\n",
             base.stages, base.micro_batches, base.layers, "program", "engine", "items", "ms", "M items/s", "peak MB",
             "step s");
  struct Case {
    std::string name;
    Pipeline shape;
  };
  std::vector<Case> cases;
  auto const add = [&](std::string const& name, auto&& change) {
    cases.push_back({name, base});
    change(cases.back().shape);
  };
  add("kernels", [](Pipeline&) {});
  add("kernels, half the micro-batches", [](Pipeline& p) { p.micro_batches = std::max(1, p.micro_batches / 2); });
  add("kernels, host-bound", [](Pipeline& p) { p.issue = 60e-6; });
  add("kernels, interference", [](Pipeline& p) { p.interference = true; });
  add("kernels, one NIC for all", [](Pipeline& p) { p.shared_links = true; });
  add("one item a layer", [](Pipeline& p) {
    p.computes = 1;
    p.transfers = 0;
  });
  for (auto const& [name, shape] : cases) {
    FoldedProgram const program = testing::pipeline_program(shape);
    if (engine != "simgrid")
      measure(name, program, run_fast, "fast", repeats);
    if (engine != "fast")
      measure(name, program, run_simgrid, "simgrid", std::min(repeats, 2));
  }
  bench::print_plan_steps(FOREPLAN_ROOT, repeats);
  fmt::print("peak memory of the process: {:.0f} MB\n", peak_megabytes());
}

} // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
  } catch (std::exception const& error) {
    fmt::print(stderr, "bench_engines: {}\n", error.what());
    return 2;
  }
  return 0;
}

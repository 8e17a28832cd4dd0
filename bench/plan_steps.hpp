// From plan to report, part by part: what a planner pays for one plan.
#pragma once

#include "cluster/read_profile.hpp"
#include "engine/engine.hpp"
#include "engine/explain_timeline.hpp"
#include "engine/fold.hpp"
#include "model/read_model.hpp"
#include "planner/simulate.hpp"
#include "program/compile.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <string>

namespace foreplan::bench {

struct PlanCase {
  int micro_batches = 16;
  int dp = 128;
  bool segments = true;
  Engine engine = Engine::fast;
  int cp = 1;
  ContextParallel cp_type = ContextParallel::all_gather;
  std::int64_t sequence_length = 8192;
};

struct PlanCost {
  double compile = 0, memory = 0, fold = 0, run = 0, report = 0, whole = 0; // seconds
  std::int64_t items = 0;
  double step = 0;
};

// Llama-3.1-405B, tp 8, pp 16: tp * cp * pp * dp ranks of DGX H100. Long sequences with full recompute, else they do not fit.
inline Plan plan_of(PlanCase const& c) {
  Plan plan;
  plan.tp = 8;
  plan.pp = 16;
  plan.dp = c.dp;
  plan.cp = c.cp;
  plan.cp_type = c.cp_type;
  plan.recompute = c.cp > 1 ? Recompute::full : Recompute::none;
  plan.sequence_parallel = true;
  plan.zero_stage = 1;
  plan.sequence_length = c.sequence_length;
  plan.micro_batch = 1;
  plan.global_batch = static_cast<std::int64_t>(c.micro_batches) * c.dp;
  plan.bucket_elements = 100'000'000;
  return plan;
}

inline PlanCost cost_of(PlanCase const& c, Model const& model, HardwareProfile const& profile) {
  Plan const plan = plan_of(c);
  Cluster const cluster{profile, plan.world_size() / profile.node.devices, {}};
  PlanCost cost;
  auto last = std::chrono::steady_clock::now();
  auto lap = [&](double& seconds) {
    auto const now = std::chrono::steady_clock::now();
    seconds = std::chrono::duration<double>(now - last).count();
    last = now;
  };
  Program const program = compile(model, plan);
  lap(cost.compile);
  for (StageProgram const& stage : program.stages)
    memory_of(program, stage);
  lap(cost.memory);
  Folding const folding = fold(program, cluster, {.segments = c.segments});
  lap(cost.fold);
  Timeline const timeline = c.engine == Engine::fast ? run_fast(folding.program) : run_simgrid(folding.program);
  lap(cost.run);
  for (std::size_t i = 0; i < folding.classes.size(); ++i)
    breakdown_of(folding, timeline, i);
  lap(cost.report);
  cost.items = timeline.items;
  cost.step = timeline.step.value();
  Report const report = simulate(model, plan, cluster, {.engine = c.engine, .segments = c.segments});
  lap(cost.whole);
  return cost;
}

inline void print_plan_steps(std::string const& root, int repeats) {
  Model const model = read_model(root + "/models/llama-3.1-405b.json");
  HardwareProfile const profile = read_profile(root + "/hardware_profiles/dgx-h100.json");
  fmt::print("\n{}, tp 8, pp 16, zero 1, from plan to report (ms; the best of {} runs)\n{:>6} {:>6} {:<9} {:<8} {:>9} "
             "{:>8} {:>8} {:>8} "
             "{:>8} {:>8} {:>8}  {}\n",
             model.name, repeats, "m", "ranks", "form", "engine", "items", "compile", "memory", "fold", "run", "report",
             "whole", "step s");
  for (PlanCase const& c : {PlanCase{16, 128, true, Engine::fast}, PlanCase{16, 16, true, Engine::fast},
                            PlanCase{128, 128, true, Engine::fast}, PlanCase{128, 16, true, Engine::fast},
                            PlanCase{256, 128, true, Engine::fast}, PlanCase{16, 128, false, Engine::fast},
                            PlanCase{128, 128, false, Engine::fast}, PlanCase{128, 128, true, Engine::simgrid},
                            PlanCase{32, 2, true, Engine::fast, 64, ContextParallel::all_gather, 1 << 20},
                            PlanCase{32, 2, true, Engine::fast, 64, ContextParallel::ring, 1 << 20}}) {
    PlanCost best;
    best.whole = 1e300;
    for (int r = 0; r < repeats; ++r)
      if (PlanCost const cost = cost_of(c, model, profile); cost.whole < best.whole)
        best = cost;
    fmt::print("{:>6} {:>6} {:<9} {:<8} {:>9} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f}  {:.6f}\n",
               c.micro_batches, 128 * c.cp * c.dp, c.segments ? "segments" : "kernels",
               c.engine == Engine::fast ? "fast" : "SimGrid", best.items, 1e3 * best.compile, 1e3 * best.memory,
               1e3 * best.fold, 1e3 * best.run, 1e3 * best.report, 1e3 * best.whole, best.step);
  }
}

} // namespace foreplan::bench

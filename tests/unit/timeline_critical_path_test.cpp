// The critical path: whole (no gaps, adds up to the step) on plans of every kind, and its words.
#include "cluster/read_profile.hpp"
#include "engine/explain_timeline.hpp"
#include "model/read_model.hpp"
#include "planner/simulate.hpp"
#include "tests/catch.hpp"

using namespace foreplan;

namespace {

std::string const root = FOREPLAN_ROOT;

Model small_model() {
  Model model = read_model(root + "/models/llama-3.1-8b.json");
  model.layers = 8;
  return model;
}

Cluster test_cluster(int nodes) { return {read_profile(root + "/tests/data/test_hardware.json"), nodes, {}}; }

Plan plan_of(int tp, int pp, int dp) {
  Plan plan;
  plan.tp = tp;
  plan.pp = pp;
  plan.dp = dp;
  plan.sequence_length = 2048;
  plan.global_batch = 8 * dp;
  plan.bucket_elements = 100'000'000;
  return plan;
}

std::vector<Plan> plans() {
  std::vector<Plan> all{plan_of(1, 1, 1), plan_of(8, 1, 1), plan_of(1, 4, 2), plan_of(2, 2, 2), plan_of(1, 1, 8)};
  all.push_back(plan_of(2, 4, 2));
  all.back().zero_stage = 1;
  all.back().sequence_parallel = true;
  all.back().recompute = Recompute::full;
  all.push_back(plan_of(1, 4, 2));
  all.back().chunks = 2;
  all.back().schedule = Schedule::interleaved;
  all.back().p2p = P2p::overlapped;
  all.push_back(plan_of(1, 4, 2));
  all.back().schedule = Schedule::gpipe;
  return all;
}

PathStep step(PathPart part, int stage, int slot, double start, double end, PathKind kind) {
  PathStep result;
  result.part = part;
  result.stage = result.to = Stage(stage);
  result.slot = slot;
  result.start = start;
  result.end = end;
  result.by_kind[static_cast<std::size_t>(kind)] = Seconds(end - start);
  return result;
}

} // namespace

// Each item on the path starts when the one before it has ended, the first at nought, the last ends with the step: so the
// lengths add up to the step.
TEST_CASE("the critical path is the step, without gaps") {
  for (bool segments : {false, true})
    for (Plan const& plan : plans()) {
      Cluster const cluster = test_cluster((plan.world_size() + 7) / 8);
      Simulation const run = run_plan(small_model(), plan, cluster, {.segments = segments});
      std::vector<PathStep> const steps = critical_path_of(*run.program, run.folding, run.timeline);
      double const rounding = 1e-9 * run.timeline.step.value();
      REQUIRE(!steps.empty());
      CHECK(steps.front().start == Approx(0).margin(rounding));
      CHECK(steps.back().end == Approx(run.timeline.step.value()).margin(rounding));
      for (std::size_t i = 1; i < steps.size(); ++i)
        REQUIRE(steps[i].start == Approx(steps[i - 1].end).margin(rounding));
      for (PathStep const& s : steps)
        REQUIRE(sum(s.by_kind).value() == Approx(s.end - s.start).margin(rounding));
      CriticalPath const path = summarize(steps, plan.pp);
      CHECK(sum(path.by_kind) / run.timeline.step == Approx(1).epsilon(1e-9));
    }
}

// A pipeline without interference: the last stage's work, and the way there and back through the others: one forward and
// one backward on each of stages 0 to 2, so the path is at least as long as m passes of the slowest stage.
TEST_CASE("a pipeline's path goes down, stays on the last stage and comes back") {
  Plan const plan = plan_of(1, 4, 1);
  Report const report = simulate(small_model(), plan, test_cluster(1), {.segments = false, .interference = false});
  std::vector<PathLeg> const& legs = report.critical_path.legs;
  auto const down = std::find_if(legs.begin(), legs.end(),
                                 [](PathLeg const& leg) { return leg.part == PathPart::forward; });
  REQUIRE(down != legs.end());
  CHECK(down->first == Stage(0));
  CHECK(down->last == Stage(2));
  CHECK(down->forwards == 1);
  CHECK(down->backwards == 0);
  CHECK(down->transfers == 3);
  REQUIRE(down + 2 < legs.end());
  CHECK((down + 1)->first == Stage(3));
  CHECK((down + 1)->forwards == plan.micro_batches());
  CHECK((down + 1)->backwards == plan.micro_batches());
  CHECK((down + 2)->first == Stage(2));
  CHECK((down + 2)->last == Stage(0));
  CHECK((down + 2)->backwards == 1);
}

// Forward on stages 0 and 1 with a transfer after each, forward and backward on stage 2, then the optimizer there.
TEST_CASE("words of a path") {
  std::vector<PathStep> const steps{step(PathPart::forward, 0, 0, 0, 1, PathKind::gemm),
                                    step(PathPart::forward, 0, 0, 1, 2, PathKind::attention),
                                    step(PathPart::transfer, 0, -1, 2, 2.5, PathKind::pp),
                                    step(PathPart::forward, 1, 0, 2.5, 4.5, PathKind::gemm),
                                    step(PathPart::transfer, 1, -1, 4.5, 5, PathKind::pp),
                                    step(PathPart::forward, 2, 0, 5, 7, PathKind::gemm),
                                    step(PathPart::backward, 2, 1, 7, 11, PathKind::gemm),
                                    step(PathPart::optimizer, 2, -1, 11, 12, PathKind::memory_bound)};
  CriticalPath const path = summarize(steps, 3);
  REQUIRE(path.legs.size() == 3);
  CHECK(path.by_kind[static_cast<std::size_t>(PathKind::gemm)].value() == Approx(9));
  CHECK(path.by_kind[static_cast<std::size_t>(PathKind::pp)].value() == Approx(1));
  CHECK(path.by_stage[0].value() == Approx(2));
  CHECK(path.by_stage[2].value() == Approx(7));
  CHECK(in_words(path) == "stages 0 to 1: 1 forward each (4.00 s + transfers 2 x 500 ms) -> "
                          "stage 2: 1 forward, 1 backward (6.00 s) -> stage 2: optimizer (1.00 s)");
}

TEST_CASE("of a long path the middle is left out") {
  std::vector<PathStep> steps;
  for (int i = 0; i < 20; ++i)
    steps.push_back(step(PathPart::forward, i % 2, 2 * i, i, i + 1, PathKind::gemm));
  std::string const words = in_words(summarize(steps, 2), 4);
  CHECK(words.find("16 more, back and forth between stages (16.0 s)") != std::string::npos);
}

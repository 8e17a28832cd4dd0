// A run beside its prediction: a run that is the prediction has no difference; one that differs says where.
#include "cluster/read_profile.hpp"
#include "engine/engine.hpp"
#include "engine/fold.hpp"
#include "plan/read_plan.hpp"
#include "program/compile.hpp"
#include "tests/catch.hpp"
#include "tests/equivalence/models.hpp"
#include "validate/compare_run.hpp"

using namespace foreplan;

namespace {

struct Predicted {
  Program program;
  Folding folding;
  Timeline timeline;
  std::vector<std::int64_t> peaks{1000};
  [[nodiscard]] Prediction view() const { return {program, folding, timeline, peaks}; }
};

Predicted predicted() {
  Plan plan = one_device();
  plan.tp = 4;
  Predicted result{compile(small_llama(2), plan), {}, {}};
  Cluster const cluster{read_profile(FOREPLAN_ROOT "/tests/data/test_hardware.json"), 1, {}};
  result.folding = fold(result.program, cluster, {.unfold = true});
  result.timeline = run_fast(result.folding.program);
  return result;
}

// The prediction itself as a run of its ranks.
MeasuredRun perfect_run(Predicted const& predicted) {
  MeasuredRun run{.description = "none", .step = predicted.timeline.step.value(), .repeats = {1, 1}, .ranks = {}};
  run.ranks.resize(predicted.folding.classes.size());
  for (std::size_t i = 0; i < run.ranks.size(); ++i)
    run.ranks[predicted.folding.classes[i].representative.index()] = {1000, predicted.timeline.classes[i]};
  return run;
}

// Makes attention on one rank `factor` times as long.
void slow_attention(Predicted const& predicted, MeasuredRun& run, std::size_t rank, double factor) {
  for (TimelineEntry& entry : run.ranks[rank].entries) {
    BlockOrigin const& origin = predicted.folding.blocks[static_cast<std::size_t>(
        predicted.folding.program.classes[rank].uses[static_cast<std::size_t>(entry.use)].block)];
    if (origin.layer_program == nullptr)
      continue;
    if (op_of(origin, static_cast<std::size_t>(entry.item)).kind == OpKind::attention_backward)
      entry.end = entry.start + factor * (entry.end - entry.start);
  }
}

} // namespace

TEST_CASE("a run that is the prediction has no difference", "[validate]") {
  Predicted const what = predicted();
  RunComparison const comparison = compare_run(what.view(), perfect_run(what));
  CHECK(comparison.step.predicted == comparison.step.measured);
  REQUIRE(comparison.ops.size() > 10);
  for (std::vector<ComparedTime> const* times : {&comparison.ops, &comparison.categories})
    for (ComparedTime const& time : *times) {
      INFO(time.name);
      CHECK(time.predicted == Approx(time.measured));
    }
  CHECK(comparison.outliers.empty());
  CHECK(within(comparison, {.step = 0, .memory = 0}));
  CHECK(side_by_side(what.view(), perfect_run(what)).size() == 8); // four ranks, twice each
}

TEST_CASE("a rank whose ops are slower than the others' is named", "[validate]") {
  Predicted const what = predicted();
  MeasuredRun run = perfect_run(what);
  slow_attention(what, run, 3, 1.8);
  run.step = 1e-4; // of which 0.8 * 2 kernels of at least 5 us are more than a hundredth
  RunComparison const comparison = compare_run(what.view(), run);
  REQUIRE(comparison.outliers.size() == 1);
  CHECK(comparison.outliers[0].rank == 3);
  CHECK(comparison.outliers[0].op == "attention_backward");
  CHECK(comparison.outliers[0].ratio == Approx(1.8));
  CHECK_THAT(to_text(comparison), Catch::Contains("rank 3's attention_backward ops are 1.8x slower"));
}

TEST_CASE("a step or a peak beyond its tolerance is not within", "[validate]") {
  Predicted const what = predicted();
  MeasuredRun run = perfect_run(what);
  run.step *= 1.2; // predicted / measured - 1 = -1/6
  CHECK(!within(compare_run(what.view(), run), {.step = 0.16}));
  CHECK(within(compare_run(what.view(), run), {.step = 0.17}));
  run.ranks[2].peak = 1011;
  CHECK(!within(compare_run(what.view(), run), {.step = 0.17, .memory = 0.01}));
}

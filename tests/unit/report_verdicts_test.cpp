// Verdicts about one plan: what makes it fit and at which price; what one op costs.
#include "cluster/read_profile.hpp"
#include "model/read_model.hpp"
#include "plan/plan_checker.hpp"
#include "planner/explain.hpp"
#include "planner/fit.hpp"
#include "tests/catch.hpp"

using namespace foreplan;

namespace {

std::string const root = FOREPLAN_ROOT;
constexpr double headroom = 0.14;

Model llama() { return read_model(root + "/models/llama-3.1-8b.json"); }

Cluster test_cluster(int nodes) { return {read_profile(root + "/tests/data/test_hardware.json"), nodes, {}}; }

Plan plan_of(int tp, int pp, int dp) {
  Plan plan;
  plan.tp = tp;
  plan.pp = pp;
  plan.dp = dp;
  plan.sequence_length = 4096;
  plan.global_batch = 64;
  return plan;
}

OpExplanation explained(Plan const& plan, std::string const& name) {
  for (OpExplanation const& op : explain_ops(llama(), plan, test_cluster(1), Stage(0)))
    if (op.name == name)
      return op;
  return {};
}

} // namespace

// 8.03e9 parameters at 18 bytes (2 parameters, 4 gradients, 12 optimizer) are 145 GB on one device of 80 usable.
TEST_CASE("a plan that is too large gets changes that make it fit, cheapest first") {
  Model const model = llama();
  Plan const plan = plan_of(1, 1, 8);
  FitVerdict const verdict = fit_verdict(model, plan, test_cluster(1), headroom);
  CHECK(verdict.report.fit == Fit::too_large);
  REQUIRE(!verdict.changes.empty());
  CHECK(verdict.changes_at_once >= 1);
  for (Change const& change : verdict.changes) {
    CHECK(change.fit == Fit::fits);
    CHECK(change.plan.world_size() == plan.world_size());
    CHECK(check(model, change.plan).empty());
    CHECK(peak_memory(model, change.plan) == change.peak);
    CHECK(change.peak <= verdict.report.usable_memory * (1 - headroom));
    CHECK(change.step > Seconds(0));
  }
  for (std::size_t i = 1; i < verdict.changes.size(); ++i)
    CHECK(verdict.changes[i].step >= verdict.changes[i - 1].step);
}

TEST_CASE("single changes are legal, on as many devices, and not the plan itself") {
  Model const model = llama();
  Plan plan = plan_of(2, 2, 2);
  plan.micro_batch = 4;
  plan.attention = Attention::unfused;
  std::vector<Change> const changes = single_changes(model, plan, test_cluster(1), headroom);
  CHECK(changes.size() > 8);
  for (Change const& change : changes) {
    CHECK(check(model, change.plan).empty());
    CHECK(change.plan.world_size() == 8);
    CHECK(!(change.plan == plan));
  }
}

TEST_CASE("a plan that fits needs no change, and says how large a micro-batch would") {
  Plan plan = plan_of(8, 1, 1);
  FitVerdict const verdict = fit_verdict(llama(), plan, test_cluster(1), headroom);
  CHECK(verdict.report.fit == Fit::fits);
  CHECK(verdict.changes.empty());
  CHECK(verdict.largest_micro_batch >= 1);
  plan.micro_batch = verdict.largest_micro_batch;
  CHECK(peak_memory(llama(), plan) <= verdict.report.usable_memory * (1 - headroom));
}

TEST_CASE("where nothing helps, the closest is said") {
  Model model = llama();
  model.layers *= 40;
  FitVerdict const verdict = fit_verdict(model, plan_of(1, 1, 1), test_cluster(1), headroom);
  CHECK(verdict.changes.empty());
  REQUIRE(verdict.closest);
  CHECK(verdict.closest->peak < verdict.report.peak_memory);
}

// qkv: T = 4096 rows, h = 4096 in, (32 + 2 * 8) * 128 = 6144 out: 2 T h 6144 flops; bytes 2 (T h + h 6144 + T 6144). 64
// micro-batches of 32 blocks.
TEST_CASE("a product explained by hand") {
  OpExplanation const qkv = explained(plan_of(1, 1, 1), "qkv");
  CHECK(qkv.flops.value() == 2.0 * 4096 * 4096 * 6144);
  CHECK(qkv.bytes.value() == 2.0 * (4096.0 * 4096 + 4096.0 * 6144 + 4096.0 * 6144));
  CHECK(qkv.times == 64 * 32);
  CHECK(qkv.flops_at_peak.value() == Approx(2.0 * 4096 * 4096 * 6144 / 1000e12));
  CHECK(qkv.alone >= qkv.flops_at_peak);
  CHECK(qkv.alone >= qkv.bytes_at_peak);
  bool peak = false;
  for (Source const& parameter : qkv.parameters)
    peak = peak || (parameter.key == "chip.bf16_peak" && parameter.value == "1000 TFLOP/s");
  CHECK(peak);
}

// An all-reduce of x bytes over 8 members sends 2 * 7/8 x.
TEST_CASE("a collective explained by hand") {
  OpExplanation const reduce = explained(plan_of(8, 1, 1), "reduce out output");
  CHECK(reduce.communication);
  CHECK(reduce.bytes.value() == Approx(2 * 7.0 / 8 * 4096 * 4096 * 2));
  CHECK((reduce.latency + reduce.bytes / reduce.rate).value() == Approx(reduce.alone.value()));
}

// `foreplan explain` of collectives, of a layer and of the step, and of products.
#include "cluster/read_profile.hpp"
#include "model/read_model.hpp"
#include "planner/explain.hpp"
#include "tests/catch.hpp"

#include <fmt/format.h>

using namespace foreplan;

namespace {

std::string const root = FOREPLAN_ROOT;

Plan plan_of(int tp, int pp, int dp) {
  Plan plan;
  plan.tp = tp;
  plan.pp = pp;
  plan.dp = dp;
  plan.sequence_parallel = true;
  plan.zero_stage = 1;
  plan.sequence_length = 4096;
  plan.global_batch = 64;
  return plan;
}

std::vector<OpExplanation> explained(char const* hardware, Plan const& plan) {
  Cluster const cluster{read_profile(root + hardware), 2, {}};
  return explain_ops(read_model(root + "/models/llama-3.1-8b.json"), plan, cluster, Stage(0));
}

OpExplanation named(std::vector<OpExplanation> const& ops, std::string const& name) {
  for (OpExplanation const& op : ops)
    if (op.name == name)
      return op;
  FAIL("no op " << name);
  return {};
}

} // namespace

TEST_CASE("collectives say algorithm, formula, parameters, nearest curve, correction and band") {
  std::vector<OpExplanation> const ops = explained("/hardware_profiles/dgx-h100.json", plan_of(4, 2, 2));
  for (char const* name : {"reduce d norm 1", "reduce bucket 0", "send activations"}) {
    OpExplanation const op = named(ops, name);
    INFO(op.collective);
    for (char const* part : {"formula", "parameters", "measured", "nearest curve", "correction", "band of left-out"})
      CHECK(op.collective.find(part) != std::string::npos);
    // What is explained is what is simulated.
    CHECK(op.collective.find(fmt::format("{:.4g} us", op.alone.value() * 1e6)) != std::string::npos);
    CHECK(op.band > 0);
    CHECK(std::any_of(op.parameters.begin(), op.parameters.end(),
                      [](Source const& source) { return source.key.starts_with("collectives.parameters."); }));
  }
  CHECK(named(ops, "reduce d norm 1").collective.starts_with("reduce_scatter"));
  CHECK(named(ops, "send activations").collective.starts_with("sendrecv"));
}

TEST_CASE("without a fitted model collectives are rings") {
  OpExplanation const op = named(explained("/tests/data/test_hardware.json", plan_of(4, 1, 4)), "reduce d norm 1");
  CHECK(op.collective.empty());
  CHECK(op.formula.find("ring") != std::string::npos);
}

TEST_CASE("products say their limits, the nearest measured products, and the correction") {
  std::vector<OpExplanation> const ops = explained("/hardware_profiles/dgx-h100.json", plan_of(4, 2, 2));
  OpExplanation const op = named(ops, "gate-up");
  INFO(op.product);
  for (char const* part : {"memory", "power", "tiles", "nearest", "measured", "correction"})
    CHECK(op.product.find(part) != std::string::npos);
  CHECK(op.product.find(fmt::format("{:.4g} us\n", op.alone.value() * 1e6)) != std::string::npos); // what is simulated
  CHECK(named(explained("/tests/data/test_hardware.json", plan_of(4, 1, 4)), "gate-up").product.empty());
}

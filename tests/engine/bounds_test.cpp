// The planner's lower bound never exceeds the engine's step, and is not far below it.
#include "planner/bounds.hpp"
#include "planner/simulate.hpp"
#include "tests/catch.hpp"
#include "tests/engine/random_plan.hpp"

#include <fmt/format.h>

using namespace foreplan;

TEST_CASE("no step is faster than its lower bound", "[slow]") {
  std::mt19937_64 random(5);
  Model const model = foreplan::testing::llama(8);
  double sum = 0;
  int const count = 300;
  for (int i = 0; i < count; ++i) {
    Plan const plan = foreplan::testing::random_plan(random, model, 64);
    Cluster const cluster = foreplan::testing::random_cluster(random, plan, i % 4 != 0);
    INFO(describe(plan));
    LowerBound bound(model, cluster);
    double const share = bound(plan) / step_time(model, plan, cluster);
    CHECK(share <= 1 + 1e-9);
    sum += share;
  }
  fmt::print("lower bound: {:.1f} % of the step on average over {} plans\n", 100 * sum / count, count);
}

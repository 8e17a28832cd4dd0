// --require and --forbid: what they let through, what they refuse to read, and what the search space counts.
#include "io/input_error.hpp"
#include "model/read_model.hpp"
#include "planner/constraint.hpp"
#include "planner/search_space.hpp"
#include "tests/catch.hpp"

using namespace foreplan;

namespace {

bool allowed(std::string const& option, std::string const& text, Plan const& plan) {
  return allows(read_constraint(option, text), plan);
}

std::string error_of(std::string const& text) {
  try {
    read_constraint("--require", text);
  } catch (InputError const& error) {
    return error.what();
  }
  return {};
}

} // namespace

TEST_CASE("constraints compare a plan's field with a value") {
  Plan plan;
  plan.tp = 4;
  plan.pp = 2;
  plan.dp = 2;
  plan.global_batch = 16;
  plan.micro_batch = 2; // 16 / (2 * 2) = 4 micro-batches
  plan.recompute = Recompute::full;
  plan.sequence_parallel = true;
  for (char const* holds :
       {"tp=4", "tp >= 4", "tp<=4", "tp != 8", "pp<3", "dp>1", "micro-batches=4", "micro-batch=2", "recompute=full",
        "recompute!=none", "sequence-parallel=on", "schedule=1f1b", "zero=0", "chunks=1"}) {
    CHECK(allowed("--require", holds, plan));
    CHECK(!allowed("--forbid", holds, plan));
  }
  for (char const* fails : {"tp=8", "pp>2", "recompute=none", "sequence-parallel=off"}) {
    CHECK(!allowed("--require", fails, plan));
    CHECK(allowed("--forbid", fails, plan));
  }
}

TEST_CASE("what cannot be read is refused with what is valid") {
  CHECK(error_of("tp") ==
        "--require tp: must be a field, one of = != < <= > >=, and a value, as tp=8 or recompute!=full");
  CHECK(error_of("tpp=8").find("did you mean \"tp\"?") != std::string::npos);
  CHECK(error_of("recompute=ful").find("did you mean \"full\"?") != std::string::npos);
  CHECK(error_of("tp=eight").find("whole number") != std::string::npos);
  CHECK(error_of("tp=").find("whole number") != std::string::npos);
  CHECK(error_of("recompute<full").find("no order") != std::string::npos);
}

// Every combination is either a legal plan that the constraints allow, or counted with the rule that it breaks.
TEST_CASE("the search space counts what it leaves out") {
  Model const model = read_model(std::string(FOREPLAN_ROOT) + "/models/llama-3.1-8b.json");
  SearchSpace const all = search_space(model, 16, 8, 4096, 48);
  SearchSpace const some = search_space(model, 16, 8, 4096, 48, {read_constraint("--require", "tp=2")});
  auto rejected = [](SearchSpace const& space) {
    std::int64_t sum = 0;
    for (Rejection const& rejection : space.rejected)
      sum += rejection.count;
    return sum;
  };
  CHECK(all.enumerated == rejected(all) + static_cast<std::int64_t>(all.plans.size()));
  CHECK(some.enumerated == rejected(some) + static_cast<std::int64_t>(some.plans.size()));
  CHECK(all.enumerated == some.enumerated);
  CHECK(!some.plans.empty());
  for (Plan const& plan : some.plans)
    CHECK(plan.tp == 2);
  CHECK(some.rejected.front().rule == "--require tp=2");
  for (std::size_t i = 1; i < all.rejected.size(); ++i)
    CHECK(all.rejected[i].count <= all.rejected[i - 1].count);
}

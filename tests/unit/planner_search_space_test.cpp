// The planner's enumeration and the plan checker know nothing of each other: what the one proposes is legal by the other,
// and what is legal among all combinations of a box is proposed.
#include "model/read_model.hpp"
#include "plan/plan_checker.hpp"
#include "planner/search_space.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

using namespace foreplan;

namespace {

using Key = std::tuple<int, int, int, int, std::int64_t, bool, int, Recompute, Schedule>;

Key key_of(Plan const& plan) {
  return {plan.tp,         plan.pp,        plan.chunks,  plan.dp, plan.micro_batch, plan.sequence_parallel,
          plan.zero_stage, plan.recompute, plan.schedule};
}

// The switches of a plan with given degrees: all 2 x 4 x 2. ZeRO among one rank shards nothing and is no plan of its own;
// stages 2 and 3 are searched without a pipeline.
void add_legal_switches(Model const& model, Plan plan, std::set<Key>& legal) {
  for (bool sequence_parallel : {false, true})
    for (int zero_stage : {0, 1, 2, 3})
      for (Recompute recompute : {Recompute::none, Recompute::full}) {
        plan.sequence_parallel = sequence_parallel;
        plan.zero_stage = zero_stage;
        plan.recompute = recompute;
        if ((zero_stage == 0 || plan.dp > 1) && (zero_stage < 2 || plan.pp == 1) && check(model, plan).empty())
          legal.insert(key_of(plan));
      }
}

// The planner's schedules: one chunk a stage runs 1F1B or ZB-H1, two run ZB-V, V-Half or interleaved, more interleaved.
std::vector<Schedule> schedules_of(Plan const& plan) {
  if (plan.chunks == 1)
    return {Schedule::one_f_one_b, Schedule::zb_h1};
  if (plan.chunks == 2)
    return {Schedule::interleaved, Schedule::zb_v, Schedule::v_half};
  return {Schedule::interleaved};
}

// All combinations of the box that use every device and that the checker allows; transfers overlap but with 1F1B.
std::set<Key> legal_plans(Model const& model, int devices, int devices_per_node, Plan plan) {
  std::set<Key> legal;
  for (plan.tp = 1; plan.tp <= devices_per_node; ++plan.tp)
    for (plan.pp = 1; plan.pp <= devices; ++plan.pp)
      for (plan.dp = 1; plan.dp <= devices; ++plan.dp)
        if (plan.world_size() == devices)
          for (plan.chunks = 1; (plan.chunks - 1) * plan.pp <= model.layers + 2; ++plan.chunks) { // one too many
            for (plan.micro_batch = 1; plan.micro_batch <= plan.global_batch; plan.micro_batch *= 2) {
              for (Schedule schedule : schedules_of(plan)) {
                plan.schedule = schedule;
                plan.p2p = schedule == Schedule::one_f_one_b ? P2p::synchronous : P2p::overlapped;
                add_legal_switches(model, plan, legal);
              }
            }
          }
  return legal;
}

// How many plans there are.
std::size_t check_equality(Model const& model, int devices, int devices_per_node, std::int64_t sequence_length,
                           std::int64_t global_batch) {
  INFO(model.name << ", " << devices << " devices in nodes of " << devices_per_node << ", batch " << global_batch);
  SearchSpace const space = search_space(model, devices, devices_per_node, sequence_length, global_batch, {}, {},
                                         {.split_schedules = true});
  std::set<Key> proposed;
  std::size_t illegal = 0, of_other_size = 0;
  for (Plan const& plan : space.plans) {
    illegal += check(model, plan).empty() ? 0 : 1;
    of_other_size += plan.world_size() == devices ? 0 : 1;
    proposed.insert(key_of(plan));
  }
  CHECK(illegal == 0);
  CHECK(of_other_size == 0);
  CHECK(proposed.size() == space.plans.size()); // each once
  Plan plan;
  plan.sequence_length = sequence_length;
  plan.global_batch = global_batch;
  std::set<Key> const legal = legal_plans(model, devices, devices_per_node, plan);
  std::vector<Key> missing, excess;
  std::set_difference(legal.begin(), legal.end(), proposed.begin(), proposed.end(), std::back_inserter(missing));
  std::set_difference(proposed.begin(), proposed.end(), legal.begin(), legal.end(), std::back_inserter(excess));
  if (!missing.empty()) {
    auto const& [tp, pp, chunks, dp, micro_batch, sequence_parallel, zero_stage, recompute, schedule] = missing.front();
    UNSCOPED_INFO("first not proposed: tp " << tp << ", pp " << pp << ", chunks " << chunks << ", dp " << dp
                                            << ", micro-batch " << micro_batch << ", " << to_string(schedule));
  }
  CHECK(missing.empty());
  CHECK(excess.empty());
  return legal.size();
}

Model model_from(std::string const& file) { return read_model(FOREPLAN_ROOT "/models/" + file); }

} // namespace

TEST_CASE("the planner proposes what the plan checker allows, and nothing else", "[slow]") {
  std::size_t plans = 0;
  for (auto const& [devices, per_node] : {std::pair{1, 8}, {8, 8}, {12, 4}, {24, 8}, {64, 8}})
    for (std::string const file : {"llama-3.1-8b.json", "llama-3.1-70b.json", "gpt-3-175b.json", "llama-2-13b.json"})
      for (std::int64_t const batch : {24, 96})
        plans += check_equality(model_from(file), devices, per_node, 2048, batch);
  CHECK(plans > 10'000);
}

// 28 heads with 4 KV heads, 30 and 61 layers, an odd batch, tokens that tp does not divide.
TEST_CASE("the same for sizes that divide badly") {
  Model model = model_from("llama-3.1-8b.json");
  model.heads = 28;
  model.kv_heads = 4;
  std::size_t plans = 0; // none of 2 layers on 28 devices
  for (int const layers : {1, 2, 5, 30, 61}) {
    model.layers = layers;
    for (int const devices : {4, 6, 8, 28})
      for (std::int64_t const batch : {7, 12, 60})
        plans += check_equality(model, devices, 8, 1022, batch);
  }
  CHECK(plans > 1'000);
}

TEST_CASE("Domino and tp overlap are searched where a constraint names them") {
  Model const model = read_model(std::string(FOREPLAN_ROOT) + "/models/llama-2-13b.json");
  auto const count = [&](std::vector<Constraint> const& constraints) {
    std::vector<Plan> const plans = search_space(model, 8, 8, 2048, 32, constraints).plans;
    return std::pair{std::count_if(plans.begin(), plans.end(), [](Plan const& plan) { return plan.domino_slices > 1; }),
                     std::count_if(plans.begin(), plans.end(), [](Plan const& plan) { return plan.tp_overlap; })};
  };
  CHECK(count({}) == std::pair<std::ptrdiff_t, std::ptrdiff_t>{0, 0});
  auto const [domino, none] = count({read_constraint("--require", "domino-slices=2")});
  CHECK(domino > 0);
  CHECK(none == 0);
  auto const [zero, overlapped] = count({read_constraint("--require", "tp-overlap=on")});
  CHECK(zero == 0);
  CHECK(overlapped > 0);
}

// On two nodes of 8: ZeRO-3 over dp 16 / tp has inner groups of 8 / tp ranks, with hpZ alone and with all of ZeRO++.
TEST_CASE("ZeRO++ is searched when it may, where ZeRO-3 spans nodes") {
  Model const model = model_from("llama-3.1-8b.json");
  auto with_codes = [&](int devices, Allowed allowed) {
    SearchSpace const space = search_space(model, devices, 8, 4096, 64, {}, {}, allowed);
    std::vector<Plan> plans;
    std::copy_if(space.plans.begin(), space.plans.end(), std::back_inserter(plans),
                 [](Plan const& plan) { return plan.sharding != Sharding{}; });
    return plans;
  };
  CHECK(with_codes(16, {}).empty());
  CHECK(with_codes(8, {.quantized = true}).empty());
  std::vector<Plan> const plans = with_codes(16, {.quantized = true});
  CHECK_FALSE(plans.empty());
  std::size_t quantized = 0;
  for (Plan const& plan : plans) {
    CHECK(plan.zero_stage == 3);
    CHECK(plan.sharding.inner_group == 8 / plan.tp);
    CHECK(plan.sharding.secondary_shard);
    quantized += plan.sharding.gradient_bits == 4 && plan.sharding.weight_bits == 8 ? 1 : 0;
  }
  CHECK(2 * quantized == plans.size());
}

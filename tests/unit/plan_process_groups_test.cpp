#include "plan/process_groups.hpp"
#include "tests/catch.hpp"

using namespace foreplan;

namespace {

Plan plan_of(int tp, int dp, int pp) {
  Plan plan;
  plan.tp = tp;
  plan.dp = dp;
  plan.pp = pp;
  return plan;
}

std::vector<int> values(std::vector<Rank> const& ranks) {
  std::vector<int> result;
  for (Rank rank : ranks)
    result.push_back(rank.value());
  return result;
}

std::vector<int> sizes(Model const& model, Plan const& plan) {
  std::vector<int> result;
  int next = 0; // chunks follow each other: chunk by chunk, stage by stage
  for (int chunk = 0; chunk < plan.chunks; ++chunk)
    for (int stage = 0; stage < plan.pp; ++stage) {
      LayerRange const range = layers_of(model, plan, Stage(stage), Chunk(chunk));
      CHECK(range.first == next);
      next = range.last;
      result.push_back(range.size());
    }
  CHECK(next == model.layers + 2); // none is lost
  return result;
}

} // namespace

// tp varies fastest, then dp, then pp: rank = tp + 2 (dp + 2 pp).
TEST_CASE("ranks and coordinates, Megatron's order") {
  Plan const plan = plan_of(2, 2, 3);
  for (int rank = 0; rank < plan.world_size(); ++rank)
    CHECK(rank_at(plan, coordinate_of(plan, Rank(rank))) == Rank(rank));
  CHECK(coordinate_of(plan, Rank(7)) == Coordinate{.tp = 1, .dp = 1, .pp = 1});
  CHECK(rank_at(plan, {.dp = 1, .pp = 2}) == Rank(10));
}

TEST_CASE("groups hold the ranks that differ along their axes") {
  Plan const plan = plan_of(2, 2, 3);
  CHECK(values(group_of(plan, Rank(7), Axis::tp)) == std::vector<int>{6, 7});
  CHECK(values(group_of(plan, Rank(7), Axis::dp)) == std::vector<int>{5, 7});
  CHECK(values(group_of(plan, Rank(7), Axis::pp)) == std::vector<int>{3, 7, 11});
  CHECK(values(group_of(plan, Rank(7), {Axis::tp, Axis::pp})) == std::vector<int>{2, 3, 6, 7, 10, 11});
  CHECK(group_of(plan, Rank(0), {Axis::tp, Axis::dp, Axis::pp}).size() == 12);
  CHECK(group_size(plan, {Axis::dp, Axis::pp}) == 6);
  CHECK(to_string(AxisSet{Axis::tp, Axis::pp}) == "tp+pp");
}

// ZeRO++: dp 8 in inner groups of 2, which all share the states.
TEST_CASE("inner groups are no copies") {
  Plan plan;
  plan.dp = 8;
  plan.zero_stage = 3;
  plan.sharding.inner_group = 2;
  CHECK(to_string(shard_axes(plan)) == "dp+replica");
  CHECK(to_string(inner_axes(plan)) == "dp");
  CHECK(group_size(plan, shard_axes(plan)) == 8);
  CHECK_FALSE(has_copies(plan));
  plan.sharding.inner_group = 0;
  plan.zero_group = 2;
  CHECK(to_string(shard_axes(plan)) == "dp");
  CHECK(has_copies(plan));
}

// tp 2, cp 2, dp 4 of which 2 share the states: rank = tp + 2 (cp + 2 (dp + 2 (replica + 2 pp))).
TEST_CASE("context-parallel ranks and replicas") {
  Plan plan = plan_of(2, 4, 2);
  plan.cp = 2;
  plan.zero_group = 2;
  CHECK(plan.world_size() == 32);
  CHECK(coordinate_of(plan, Rank(27)) == Coordinate{.tp = 1, .cp = 1, .dp = 0, .replica = 1, .pp = 1});
  CHECK(data_index(plan, coordinate_of(plan, Rank(27))) == 2);
  CHECK(values(group_of(plan, Rank(27), Axis::replica)) == std::vector<int>{19, 27});
  CHECK(values(group_of(plan, Rank(27), {Axis::cp, Axis::dp})) == std::vector<int>{25, 27, 29, 31});
  CHECK(to_string(data_group(plan)) == "cp+dp+replica");
  for (int rank = 0; rank < plan.world_size(); ++rank)
    CHECK(rank_at(plan, coordinate_of(plan, Rank(rank))) == Rank(rank));
}

TEST_CASE("layers are spread evenly, and none is lost") {
  Model model;
  model.layers = 8;
  CHECK(sizes(model, plan_of(1, 1, 1)) == std::vector<int>{10});
  CHECK(sizes(model, plan_of(1, 1, 4)) == std::vector<int>{3, 2, 2, 3});    // 2 blocks each, and embedding and head
  CHECK(sizes(model, plan_of(1, 1, 5)) == std::vector<int>{2, 2, 2, 2, 2}); // embedding and head count as one each
  CHECK(sizes(model, plan_of(1, 1, 3)) == std::vector<int>{3, 3, 4});       // 2, 3, 3 blocks
  Plan interleaved = plan_of(1, 1, 2);
  interleaved.chunks = 2;
  CHECK(sizes(model, interleaved) == std::vector<int>{3, 2, 2, 3});
  for (int layers = 1; layers <= 20; ++layers)
    for (int pp = 1; pp <= 22; ++pp) {
      model.layers = layers;
      CHECK(sizes(model, plan_of(1, 1, pp)).size() == static_cast<std::size_t>(pp));
    }
}

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
  CHECK(coordinate_of(plan, Rank(7)) == Coordinate{1, 1, 1});
  CHECK(rank_at(plan, {0, 1, 2}) == Rank(10));
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

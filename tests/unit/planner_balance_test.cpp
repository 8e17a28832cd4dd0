// The balancer's layouts against all others.
#include "cluster/read_profile.hpp"
#include "model/read_model.hpp"
#include "plan/plan_checker.hpp"
#include "planner/balance.hpp"
#include "planner/simulate.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <numeric>

using namespace foreplan;

namespace {

Model llama() { return read_model(FOREPLAN_ROOT "/models/llama-3.1-8b.json"); }

Cluster node() { return {read_profile(FOREPLAN_ROOT "/hardware_profiles/dgx-h100.json"), 1, {}}; }

Plan pipeline(int pp, int chunks, Recompute recompute) {
  Plan plan;
  plan.pp = pp;
  plan.chunks = chunks;
  plan.schedule = chunks > 1 ? Schedule::interleaved : Schedule::one_f_one_b;
  plan.p2p = chunks > 1 ? P2p::overlapped : P2p::synchronous;
  plan.recompute = recompute;
  plan.sequence_length = 4096;
  plan.global_batch = 32;
  return plan;
}

// Forward and backward of one micro-batch on the slowest stage.
Seconds slowest_stage(Plan const& plan, LowerBound& times) {
  PlanLayers const& layers = times.layers_of_plan(plan);
  LayerTimes const& block = plan.recompute == Recompute::full ? layers.recomputed_block : layers.block;
  std::vector<Seconds> busy(static_cast<std::size_t>(plan.pp));
  for (int part = 0; part < plan.pp * plan.chunks; ++part) {
    Seconds& stage = busy[static_cast<std::size_t>(stage_of_part(plan, part).value())];
    stage += (block.forward + block.backward) * plan.layout[static_cast<std::size_t>(part)];
    if (part == 0)
      stage += layers.embedding.forward + layers.embedding.backward;
    if (part == plan.pp * plan.chunks - 1)
      stage += layers.head.forward + layers.head.backward;
  }
  return *std::max_element(busy.begin(), busy.end());
}

} // namespace

TEST_CASE("no layout has a faster slowest stage than the balanced one", "[balance]") {
  Model model = llama();
  model.layers = 9;
  LowerBound times(model, node());
  for (Recompute recompute : {Recompute::none, Recompute::full})
    for (int chunks : {1, 2}) {
      Plan plan = pipeline(2, chunks, recompute);
      plan.layout = balanced_layout(model, plan, times);
      CHECK(std::accumulate(plan.layout.begin(), plan.layout.end(), 0) == model.layers);
      CHECK(check(model, plan).empty());
      Seconds const balanced = slowest_stage(plan, times);
      Plan other = plan; // of two stages: which of a stage's parts a block is in makes no difference
      for (int on_first = 0; on_first <= model.layers; ++on_first) {
        other.layout.assign(plan.layout.size(), 0);
        other.layout.front() = on_first;
        other.layout.back() = model.layers - on_first;
        CHECK(slowest_stage(other, times) >= balanced * (1 - 1e-12));
      }
    }
}

// Llama-3.1-8B: the head weighs about 2.4 blocks, so of 32 blocks on 4 stages the last gets fewer.
TEST_CASE("a heavy head leaves its stage fewer blocks, and the step is faster", "[balance]") {
  Model const model = llama();
  LowerBound times(model, node());
  Plan plan = pipeline(4, 1, Recompute::none);
  Seconds const even = step_time(model, plan, node());
  plan.layout = balanced_layout(model, plan, times);
  CHECK(plan.layout.back() < 8);
  CHECK(plan.layout.front() >= 8);
  CHECK(step_time(model, plan, node()) < even);
}

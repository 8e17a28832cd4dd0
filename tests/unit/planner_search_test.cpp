// The search against its own engine run on every plan: bounds cut off what cannot win, and nothing else.
#include "cluster/read_profile.hpp"
#include "model/read_model.hpp"
#include "planner/bounds.hpp"
#include "planner/fewest_recomputed.hpp"
#include "planner/search.hpp"
#include "tests/catch.hpp"

#include <algorithm>

using namespace foreplan;

namespace {

SearchRequest job() {
  SearchRequest request;
  request.model = read_model(FOREPLAN_ROOT "/models/llama-3.1-8b.json");
  request.cluster = {read_profile(FOREPLAN_ROOT "/hardware_profiles/dgx-h100.json"), 1, {}};
  request.sequence_length = 4096;
  request.global_batch = 16;
  request.finalists = 0;
  request.keep = 8;
  return request;
}

} // namespace

TEST_CASE("the first plans of a search are the fastest of all that fit", "[search][slow]") {
  SearchRequest const request = job();
  Bytes const usable = usable_memory(request.cluster.profile);
  SearchSpace const space = search_space(request.model, 8, 8, request.sequence_length, request.global_batch);
  LowerBound bound(request.model, request.cluster);
  std::vector<Seconds> steps;
  std::size_t beyond_bound = 0;
  for (Plan const& plan : space.plans) {
    if (fit_of(peak_memory(request.model, plan), usable, request.headroom) != Fit::fits)
      continue;
    steps.push_back(step_time(request.model, plan, request.cluster));
    beyond_bound += bound(plan) > steps.back() * (1 + 1e-9) ? 1 : 0;
  }
  CHECK(beyond_bound == 0);
  std::sort(steps.begin(), steps.end());

  SearchResult const result = search(request);
  CHECK(static_cast<std::size_t>(result.fit) == steps.size());
  REQUIRE(result.ranked.size() >= request.keep);
  // Partly recomputed plans come between those of the space.
  std::vector<Seconds> whole;
  for (Candidate const& candidate : result.ranked)
    if (candidate.plan.recompute_layers < 0)
      whole.push_back(candidate.step);
  for (std::size_t i = 0; i < request.keep && i < whole.size() && whole[i] < result.ranked[request.keep - 1].step; ++i)
    CHECK(whole[i].value() == Approx(steps[i].value()));
  CHECK(std::is_sorted(result.ranked.begin(), result.ranked.end(),
                       [](Candidate const& a, Candidate const& b) { return a.step < b.step; }));
}

TEST_CASE("no more blocks are recomputed than memory asks for", "[search]") {
  SearchRequest const request = job();
  Bytes const usable = usable_memory(request.cluster.profile);
  Plan plan;
  plan.dp = 8;
  plan.zero_stage = 1;
  plan.micro_batch = 2;
  plan.recompute = Recompute::full;
  plan.sequence_length = request.sequence_length;
  plan.global_batch = request.global_batch;
  plan.bucket_elements = 100'000'000;
  Bytes const all = peak_memory(request.model, plan);
  auto const fewest = fewest_recomputed(request.model, plan, all, usable, request.headroom);
  REQUIRE(fewest);
  int const blocks = fewest->plan.recompute_layers;
  CHECK(blocks > 1);
  CHECK(blocks < request.model.layers);
  CHECK(fit_of(fewest->peak, usable, request.headroom) == Fit::fits);
  Plan fewer = fewest->plan;
  fewer.recompute_layers = blocks - 1;
  CHECK(fit_of(peak_memory(request.model, fewer), usable, request.headroom) != Fit::fits);
  CHECK(fewest->peak > all);
  // It is faster than full recompute, and the search proposes it.
  CHECK(step_time(request.model, fewest->plan, request.cluster) < step_time(request.model, plan, request.cluster));
  SearchResult const result = search(request);
  CHECK(result.partly_recomputed > 0);
  CHECK(std::any_of(result.ranked.begin(), result.ranked.end(),
                    [&](Candidate const& c) { return c.plan.recompute_layers > 0 && c.fit == Fit::fits; }));
  // Nothing to gain: without memory to spare, or when all of them are needed.
  CHECK_FALSE(fewest_recomputed(request.model, plan, all, all * 0.5, request.headroom));
  CHECK_FALSE(fewest_recomputed(request.model, plan, all, all / (1 - request.headroom) * 1.0001, request.headroom));
}

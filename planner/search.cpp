#include "planner/search.hpp"

#include "planner/search_space.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

namespace foreplan {

namespace {

// Adam with fp32 master weights needs 14 bytes a parameter at the least (bf16 parameters, their gradients' 2 or 4 bytes
// left out, 12 of state) over the ranks that may share them: no plan of less needs to be compiled.
Bytes least_memory(Model const& model, Plan const& plan) {
  double const parameters = static_cast<double>(parameter_count(model)) / (plan.tp * plan.pp);
  double const shards = plan.zero_stage >= 1 ? plan.dp : 1;
  double const gradient = static_cast<double>(size_of(plan.gradient_dtype));
  return Bytes(parameters * (2 + gradient + 12 / shards));
}

Candidate evaluate(SearchRequest const& request, Plan const& plan) {
  Candidate candidate{plan, least_memory(request.model, plan), Fit::too_large, Seconds(0)};
  Bytes const usable = usable_memory(request.cluster.profile);
  if (candidate.peak > usable)
    return candidate;
  candidate.peak = peak_memory(request.model, plan);
  candidate.fit = fit_of(candidate.peak, usable, request.headroom);
  if (candidate.fit != Fit::too_large)
    candidate.step = step_time(request.model, plan, request.cluster);
  return candidate;
}

std::vector<Candidate> evaluate_all(SearchRequest const& request, std::vector<Plan> const& plans, Progress const& progress) {
  std::vector<Candidate> candidates(plans.size());
  std::atomic<std::size_t> next = 0;
  std::mutex reporting;
  std::size_t done = 0;
  Seconds best(0);
  auto work = [&] {
    for (std::size_t i = next++; i < plans.size(); i = next++) {
      candidates[i] = evaluate(request, plans[i]);
      if (!progress)
        continue;
      std::lock_guard const lock(reporting);
      if (candidates[i].fit == Fit::fits && (best == Seconds(0) || candidates[i].step < best))
        best = candidates[i].step;
      progress(++done, plans.size(), best);
    }
  };
  unsigned const threads = request.threads > 0 ? request.threads : std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::jthread> workers;
  for (unsigned t = 1; t < threads; ++t)
    workers.emplace_back(work);
  work();
  workers.clear();
  return candidates;
}

bool faster(Candidate const& a, Candidate const& b) { return a.step < b.step; }

std::vector<Report> run_finalists(SearchRequest const& request, std::vector<Candidate> const& ranked) {
  std::vector<Report> reports;
  for (std::size_t i = 0; i < ranked.size() && std::cmp_less(i, request.finalists); ++i)
    reports.push_back(simulate(request.model, ranked[i].plan, request.cluster,
                               {.engine = Engine::simgrid, .segments = false, .headroom = request.headroom}));
  std::stable_sort(reports.begin(), reports.end(), [](Report const& a, Report const& b) { return a.step < b.step; });
  return reports;
}

} // namespace

SearchResult search(SearchRequest const& request, Progress const& progress) {
  SearchSpace const space = search_space(request.model, request.cluster.devices(), request.cluster.profile.node.devices,
                                         request.sequence_length, request.global_batch);
  SearchResult result;
  result.enumerated = space.enumerated;
  result.legal = static_cast<std::int64_t>(space.plans.size());
  std::optional<Candidate> least;
  for (Candidate const& candidate : evaluate_all(request, space.plans, progress)) {
    if (candidate.fit == Fit::fits)
      result.ranked.push_back(candidate);
    else if (candidate.fit == Fit::borderline)
      result.borderline.push_back(candidate);
    else
      ++result.too_large;
    if (!least || candidate.peak < least->peak)
      least = candidate;
  }
  std::stable_sort(result.ranked.begin(), result.ranked.end(), faster);
  std::stable_sort(result.borderline.begin(), result.borderline.end(), faster);
  if (result.ranked.empty() && result.borderline.empty() && least) {
    least->peak = peak_memory(request.model, least->plan);
    result.nearest_miss = least;
  }
  result.finalists = run_finalists(request, result.ranked);
  return result;
}

} // namespace foreplan

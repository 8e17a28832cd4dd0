#include "planner/search.hpp"

#include "plan/plan_checker.hpp"
#include "planner/balance.hpp"
#include "planner/bounds.hpp"
#include "planner/fewest_recomputed.hpp"
#include "planner/search_space.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

namespace foreplan {

namespace {

// Adam with fp32 master weights: 2 bytes of bf16 parameters, the accumulated gradients', 12 of state, over the ranks that
// share them out: no plan of less needs to be compiled.
Bytes least_memory(Model const& model, Plan const& plan) {
  double const parameters = static_cast<double>(parameter_count(model)) / (plan.tp * plan.pp);
  double const shards = group_size(plan, shard_axes(plan));
  double const gradient = static_cast<double>(size_of(plan.gradient_dtype));
  double const parameter_shards = plan.zero_stage == 3 ? shards : 1;
  double const gradient_shards = reduces_every_micro_batch(plan) ? shards : 1;
  bool const keeps_states = plan.offload.optimizer == MemoryTier::device;
  bool const keeps_gradients = keeps_states || !reduces_every_micro_batch(plan);
  bool const keeps_parameters = plan.offload.parameters == MemoryTier::device;
  return Bytes(parameters * ((keeps_parameters ? 2 / parameter_shards : 0) +
                             (keeps_gradients ? gradient / gradient_shards : 0) + (keeps_states ? 12 / shards : 0)));
}

bool is_stopped(SearchRequest const& request) { return request.stop != nullptr && *request.stop; }

// Runs work(i) for all i below count, on the request's number of threads; when it is stopped, for the first of them.
template <class Work>
void for_all(SearchRequest const& request, std::size_t count, Work const& work) {
  std::atomic<std::size_t> next = 0;
  auto run = [&] {
    for (std::size_t i = next++; i < count && !is_stopped(request); i = next++)
      work(i);
  };
  unsigned const threads = request.threads > 0 ? request.threads : std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::jthread> workers;
  for (unsigned t = 1; t < threads; ++t)
    workers.emplace_back(run);
  run();
}

// Tells how far the search is, from one thread at a time.
class Reporter {
public:
  Reporter(Progress const& progress, std::size_t all) : progress_(progress), all_(all) {}

  void done(std::size_t plans, Seconds step = Seconds(0)) {
    if (!progress_)
      return;
    std::lock_guard const lock(reporting_);
    done_ += plans;
    if (step > Seconds(0) && (best_ == Seconds(0) || step < best_))
      best_ = step;
    progress_(done_, all_, best_);
  }

private:
  Progress const& progress_;
  std::size_t all_;
  std::mutex reporting_;
  std::size_t done_ = 0;
  Seconds best_;
};

Allowed allowed_by(SearchRequest const& request) {
  std::optional<Host> const& host = request.cluster.profile.node.host;
  return {.offload = request.offload,
          .drives = request.offload && host && host->drives > 0,
          .quantized = request.quantized,
          .split_schedules = request.split_schedules};
}

SearchSpace space_of(SearchRequest const& request, int nodes) {
  HardwareProfile const& profile = request.cluster.profile;
  return search_space(request.model, nodes * profile.node.devices, profile.node.devices, request.sequence_length,
                      request.global_batch, request.constraints, request.framework, allowed_by(request));
}

// Twin-Flow (DeepSpeed, "offload ratio"): of an optimizer on the host that fits, the largest part that the device has
// room for stays there. In percent. When all of it could, that is another plan of the space.
void keep_what_fits(SearchRequest const& request, Candidate& candidate) {
  auto fits = [&](Plan const& plan) {
    return fit_of(memory_needs(request.model, plan), request.cluster.profile, request.headroom) == Fit::fits;
  };
  Plan all = candidate.plan;
  all.offload.optimizer = MemoryTier::device;
  if (fits(all))
    return;
  Candidate best = candidate;
  for (int least = 1, most = 99; least <= most;) {
    int const middle = (least + most) / 2;
    Plan plan = candidate.plan;
    plan.offload.ratio = middle / 100.0;
    if (fits(plan)) {
      best = {plan, peak_memory(request.model, plan), Fit::fits, Seconds(0), Seconds(0)};
      most = middle - 1;
    } else {
      least = middle + 1;
    }
  }
  candidate = best;
}

Candidate with_memory(SearchRequest const& request, Plan const& plan) {
  Candidate candidate{plan, least_memory(request.model, plan), Fit::too_large, Seconds(0), Seconds(0)};
  Bytes const usable = usable_memory(request.cluster.profile);
  if (candidate.peak > usable)
    return candidate;
  MemoryNeeds const needs = memory_needs(request.model, plan);
  candidate.peak = needs.device;
  candidate.fit = fit_of(needs, request.cluster.profile, request.headroom);
  bool const may_keep_part = plan.offload.optimizer == MemoryTier::host &&
                             plan.offload.parameters == MemoryTier::device;
  if (candidate.fit == Fit::fits && may_keep_part)
    keep_what_fits(request, candidate);
  return candidate;
}

// Whether a plan without recompute that fits stands in front of the i-th candidate, its twin with full recompute, as
// search_space() lists them.
bool fits_without(std::vector<Candidate> const& candidates, std::size_t i) {
  constexpr std::size_t farthest = 64; // variants of one plan
  Plan without = candidates[i].plan;
  without.recompute = Recompute::none;
  for (std::size_t back = 1; back <= std::min(i, farthest); ++back) {
    Candidate const& other = candidates[i - back];
    without.offload.ratio = other.plan.offload.ratio; // which is found for each by itself
    if (other.plan == without && other.fit == Fit::fits)
      return true;
  }
  return false;
}

// Of plans that fit with full recompute and not without: with only as many blocks recomputed as are needed. Those that
// could not be faster than `slowest` without any recompute are left out.
std::vector<Candidate> partly_recomputed(SearchRequest const& request, std::vector<Candidate> const& candidates,
                                         LowerBound& bound, Seconds slowest) {
  std::vector<Candidate> result;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    Candidate const& all = candidates[i];
    if (all.plan.recompute != Recompute::full || all.fit != Fit::fits || fits_without(candidates, i))
      continue;
    Plan without = all.plan;
    without.recompute = Recompute::none;
    if (bound(without) < slowest)
      result.push_back(all);
  }
  Bytes const usable = usable_memory(request.cluster.profile);
  for_all(request, result.size(), [&](std::size_t i) {
    auto const some = fewest_recomputed(request.model, result[i].plan, result[i].peak, usable, request.headroom);
    result[i].fit = some ? Fit::fits : Fit::too_large;
    if (some)
      result[i] = {some->plan, some->peak, Fit::fits, Seconds(0), Seconds(0)};
  });
  std::erase_if(result, [](Candidate const& candidate) {
    return candidate.fit != Fit::fits || candidate.plan.recompute_layers < 0;
  });
  for (Candidate& candidate : result)
    candidate.bound = bound(candidate.plan);
  return result;
}

// With all that saves memory.
bool is_frugal(Plan const& plan) {
  return plan.micro_batch == 1 && plan.recompute == Recompute::full && plan.schedule == Schedule::one_f_one_b &&
         (plan.zero_stage == (plan.pp == 1 ? 3 : 1) || plan.cp * plan.dp == 1) &&
         (plan.sequence_parallel || plan.tp == 1);
}

// Of the plans with all that saves memory (or of all, where none has), the one that needs least.
std::optional<Candidate> nearest_miss(SearchRequest const& request, std::vector<Plan> const& plans) {
  std::optional<Candidate> least;
  bool const any_frugal = std::any_of(plans.begin(), plans.end(), is_frugal);
  for (Plan const& plan : plans) {
    if (any_frugal && !is_frugal(plan))
      continue;
    Candidate candidate{plan, peak_memory(request.model, plan), Fit::too_large, Seconds(0), Seconds(0)};
    if (!least || candidate.peak < least->peak)
      least = candidate;
  }
  return least;
}

bool faster(Candidate const& a, Candidate const& b) { return a.step < b.step; }

// Puts further plans among those that are ranked.
void rank(std::vector<Candidate>& ranked, std::vector<Candidate> const& more) {
  ranked.insert(ranked.end(), more.begin(), more.end());
  std::stable_sort(ranked.begin(), ranked.end(), faster);
}

// What a plan must be faster than to be among those to keep.
Seconds slowest_to_keep(SearchRequest const& request, std::vector<Candidate> const& ranked) {
  return ranked.size() < request.keep ? Seconds(std::numeric_limits<double>::infinity())
                                      : ranked[request.keep - 1].step;
}

std::vector<Report> run_finalists(SearchRequest const& request, std::vector<Candidate> const& ranked) {
  std::vector<Report> reports;
  for (std::size_t i = 0; i < ranked.size() && std::cmp_less(i, request.finalists); ++i)
    reports.push_back(simulate(request.model, ranked[i].plan, request.cluster,
                               {.engine = Engine::simgrid, .segments = false, .headroom = request.headroom}));
  std::stable_sort(reports.begin(), reports.end(), [](Report const& a, Report const& b) { return a.step < b.step; });
  return reports;
}

// The candidates that fit as asked, by their lower bounds; those beyond the `keep` best are left out when no bound says
// that they could be among these. Waves of a fixed size, so that the answer does not depend on the number of threads.
std::vector<Candidate> time_best(SearchRequest const& request, std::vector<Candidate> candidates, std::size_t keep,
                                 Reporter& reporter) {
  constexpr std::size_t wave = 16;
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](Candidate const& a, Candidate const& b) { return a.bound < b.bound; });
  std::vector<Candidate> timed;
  for (std::size_t first = 0; first < candidates.size() && !is_stopped(request); first += wave) {
    if (timed.size() >= keep && candidates[first].bound >= timed[keep - 1].step) {
      reporter.done(candidates.size() - first);
      break;
    }
    std::size_t const count = std::min(wave, candidates.size() - first);
    for_all(request, count, [&](std::size_t i) {
      Candidate& candidate = candidates[first + i];
      candidate.step = step_time(request.model, candidate.plan, request.cluster);
      reporter.done(1, candidate.step);
    });
    timed.insert(timed.end(), candidates.begin() + static_cast<std::ptrdiff_t>(first),
                 candidates.begin() + static_cast<std::ptrdiff_t>(first + count));
    std::erase_if(timed, [](Candidate const& candidate) { return candidate.step == Seconds(0); }); // stopped before
    std::stable_sort(timed.begin(), timed.end(), faster);
  }
  return timed;
}

// Those of the first `keep` whose stages can be balanced better than their even layout, where that is legal, fits and is
// faster.
std::vector<Candidate> balanced(SearchRequest const& request, std::vector<Candidate> const& ranked, LowerBound& bound) {
  std::vector<Candidate> result;
  for (std::size_t i = 0; i < ranked.size() && i < request.keep; ++i) {
    Candidate candidate = ranked[i];
    if (candidate.plan.pp == 1)
      continue;
    candidate.plan.layout = balanced_layout(request.model, candidate.plan, bound);
    if (check(request.model, candidate.plan).empty())
      result.push_back(candidate);
  }
  for_all(request, result.size(), [&](std::size_t i) {
    Candidate& candidate = result[i];
    candidate.peak = peak_memory(request.model, candidate.plan);
    candidate.fit = fit_of(candidate.peak, usable_memory(request.cluster.profile), request.headroom);
    Seconds const even = candidate.step;
    candidate.step = step_time(request.model, candidate.plan, request.cluster);
    if (candidate.step >= even)
      candidate.fit = Fit::too_large;
  });
  std::erase_if(result, [](Candidate const& candidate) { return candidate.fit != Fit::fits; });
  return result;
}

} // namespace

SearchResult search(SearchRequest const& request, Progress const& progress) {
  SearchSpace const space = space_of(request, request.cluster.nodes);
  SearchResult result;
  result.rejected = space.rejected;
  result.enumerated = space.enumerated;
  result.legal = static_cast<std::int64_t>(space.plans.size());
  Reporter reporter(progress, space.plans.size());

  // Memory first: it needs no engine.
  std::vector<Candidate> candidates(space.plans.size());
  for_all(request, space.plans.size(), [&](std::size_t i) {
    candidates[i] = with_memory(request, space.plans[i]);
    if (candidates[i].fit == Fit::too_large)
      reporter.done(1);
  });

  // Then the time of what fits, where a bound does not say that it is too long.
  LowerBound bound(request.model, request.cluster);
  std::vector<Candidate> fitting, borderline;
  std::erase_if(candidates, [](Candidate const& candidate) { return candidate.peak == Bytes(0); }); // stopped before
  for (Candidate& candidate : candidates) {
    if (candidate.fit == Fit::too_large) {
      ++result.too_large;
      continue;
    }
    candidate.bound = bound(candidate.plan);
    (candidate.fit == Fit::fits ? fitting : borderline).push_back(candidate);
  }
  result.fit = static_cast<std::int64_t>(fitting.size());
  result.lack_headroom = static_cast<std::int64_t>(borderline.size());
  result.ranked = time_best(request, std::move(fitting), request.keep, reporter);
  std::vector<Candidate> partly = partly_recomputed(request, candidates, bound,
                                                    slowest_to_keep(request, result.ranked));
  result.partly_recomputed = static_cast<std::int64_t>(partly.size());
  rank(result.ranked, time_best(request, std::move(partly), request.keep, reporter));
  rank(result.ranked, balanced(request, result.ranked, bound));
  result.borderline = time_best(request, std::move(borderline), std::min<std::size_t>(request.keep, 3), reporter);
  if (result.fit == 0 && result.lack_headroom == 0 && !is_stopped(request))
    result.nearest_miss = nearest_miss(request, space.plans);
  result.stopped = is_stopped(request);
  result.reports.resize(std::min(request.explain, result.ranked.size()));
  SearchRequest unstopped = request;
  unstopped.stop = nullptr;
  if (result.stopped) // the answer must come soon
    unstopped.finalists = std::min(1, request.finalists);
  for_all(unstopped, result.reports.size(), [&](std::size_t i) {
    result.reports[i] = simulate(request.model, result.ranked[i].plan, request.cluster, {.headroom = request.headroom});
  });
  result.finalists = run_finalists(unstopped, result.ranked);
  return result;
}

int nodes_that_fit(SearchRequest const& request) {
  HardwareProfile const& profile = request.cluster.profile;
  for (int nodes = request.cluster.nodes * 2; nodes <= 1024; nodes *= 2) {
    SearchSpace const space = space_of(request, nodes);
    for (Plan const& plan : space.plans)
      if (is_frugal(plan) && least_memory(request.model, plan) <= usable_memory(profile) &&
          fit_of(memory_needs(request.model, plan), profile, request.headroom) == Fit::fits)
        return nodes;
  }
  return 0;
}

} // namespace foreplan

#include "planner/fit.hpp"

#include "plan/plan_checker.hpp"
#include "planner/fewest_recomputed.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace foreplan {

namespace {

struct Question {
  Model const& model;
  Cluster const& cluster;
  double headroom;
  bool offload;
};

Change changed(Question const& question, std::string what, Plan const& plan) {
  MemoryNeeds const needs = memory_needs(question.model, plan);
  return {std::move(what), plan, needs.device, fit_of(needs, question.cluster.profile, question.headroom), Seconds(0)};
}

// Adds the plan if it is legal.
void add(std::vector<Change>& changes, Question const& question, std::string what, Plan const& plan) {
  if (check(question.model, plan).empty())
    changes.push_back(changed(question, std::move(what), plan));
}

void add_recompute(std::vector<Change>& changes, Question const& question, Plan const& plan) {
  if (plan.recompute == Recompute::full && plan.recompute_layers < 0)
    return;
  Plan with = plan;
  if (plan.recompute == Recompute::none && plan.attention == Attention::unfused) {
    with.recompute = Recompute::selective;
    add(changes, question, "selective recompute", with);
  }
  with.recompute = Recompute::full;
  with.recompute_layers = -1;
  Change const all = changed(question, "full recompute", with);
  changes.push_back(all);
  Bytes const usable = usable_memory(question.cluster.profile);
  if (auto const some = fewest_recomputed(question.model, with, all.peak, usable, question.headroom))
    changes.push_back({fmt::format("full recompute of the first {} blocks of every chunk", some->plan.recompute_layers),
                       some->plan, some->peak, Fit::fits, Seconds(0)});
}

void add_switches(std::vector<Change>& changes, Question const& question, Plan const& plan) {
  auto with = [&](std::string what, auto&& edit) {
    Plan other = plan;
    edit(other);
    if (!(other == plan))
      add(changes, question, std::move(what), other);
  };
  with("sequence parallelism", [](Plan& p) { p.sequence_parallel = p.tp > 1; });
  for (int stage : {1, 2, 3})
    with(fmt::format("zero {}", stage), [&](Plan& p) {
      if (p.cp * p.dp > 1 && p.zero_stage < stage && !(stage > 1 && splits_backward(p.schedule)))
        p.zero_stage = stage;
    });
  with("fused attention", [](Plan& p) { p.attention = Attention::fused; });
  with("gradients accumulated in bf16 (less exact)", [](Plan& p) { p.gradient_dtype = DType::bf16; });
  if (plan.schedule == Schedule::gpipe)
    with("1f1b schedule", [](Plan& p) { p.schedule = Schedule::one_f_one_b; });
  for (std::int64_t b = plan.micro_batch / 2; b >= 1; b /= 2)
    with(fmt::format("micro-batch {}", b), [&](Plan& p) { p.micro_batch = b; });
  for (int chunks = plan.chunks - 1; chunks >= 1; --chunks)
    with(chunks == 1 ? "1f1b with one chunk a stage" : fmt::format("{} chunks a stage", chunks), [&](Plan& p) {
      p.chunks = chunks;
      if (chunks == 1) {
        p.schedule = Schedule::one_f_one_b;
        p.p2p = P2p::synchronous;
      }
    });
}

void add_offload(std::vector<Change>& changes, Question const& question, Plan const& plan) {
  constexpr MemoryTier host = MemoryTier::host;
  Plan with = plan;
  if (plan.offload.optimizer == MemoryTier::device) {
    with.offload.optimizer = host;
    add(changes, question, "optimizer on the host", with);
  }
  if (plan.zero_stage == 3 && plan.offload.parameters == MemoryTier::device) {
    with = plan;
    with.offload.optimizer = with.offload.parameters = host;
    with.offload.ratio = 1;
    add(changes, question, "optimizer and parameters on the host", with);
  }
  if (plan.recompute == Recompute::full && !plan.offload.checkpoints) {
    with = plan;
    with.offload.checkpoints = true;
    add(changes, question, "checkpoints on the host", with);
  }
}

// One degree raised by a factor at the cost of another.
void add_degrees(std::vector<Change>& changes, Question const& question, Plan const& plan) {
  struct Degree {
    char const* name;
    int Plan::*field;
  };
  constexpr Degree tp{"tp", &Plan::tp}, pp{"pp", &Plan::pp}, dp{"dp", &Plan::dp};
  auto trade = [&](Degree up, Degree down) {
    for (int factor = 2; factor <= plan.*down.field; factor *= 2) {
      if (plan.*down.field % factor != 0)
        break;
      Plan other = plan;
      other.*up.field *= factor;
      other.*down.field /= factor;
      if (other.tp > question.cluster.profile.node.devices)
        break;
      other.sequence_parallel = other.sequence_parallel && other.tp > 1;
      add(changes, question, fmt::format("{} {}, {} {}", up.name, other.*up.field, down.name, other.*down.field),
          other);
    }
  };
  trade(tp, dp);
  trade(pp, dp);
  trade(tp, pp);
  trade(pp, tp);
  trade(dp, pp);
  trade(dp, tp);
}

// Those that fit, timed, fastest first.
std::vector<Change> cheapest(Question const& question, std::vector<Change> const& changes) {
  std::vector<Change> result;
  for (Change const& change : changes)
    if (change.fit == Fit::fits) {
      result.push_back(change);
      result.back().step = step_time(question.model, change.plan, question.cluster);
    }
  std::stable_sort(result.begin(), result.end(), [](Change const& a, Change const& b) { return a.step < b.step; });
  return result;
}

// What needs least memory, changed again and again, each time by what saves most, until it fits or nothing saves more.
std::optional<Change> chain(Question const& question, std::vector<Change> const& singles, int& length) {
  auto const less = [](Change const& a, Change const& b) { return a.peak < b.peak; };
  auto const first = std::min_element(singles.begin(), singles.end(), less);
  if (first == singles.end())
    return {};
  Change best = *first;
  for (length = 1; best.fit != Fit::fits; ++length) {
    std::vector<Change> const next = single_changes(question.model, best.plan, question.cluster, question.headroom,
                                                    question.offload);
    auto const least = std::min_element(next.begin(), next.end(), less);
    if (least == next.end() || least->peak >= best.peak)
      break;
    std::string const what = best.what + ", " + least->what;
    best = *least;
    best.what = what;
  }
  return best;
}

// Two changes at once, each plan once.
std::vector<Change> double_changes(Question const& question, std::vector<Change> const& singles) {
  std::vector<Change> result;
  for (Change const& first : singles)
    for (Change second :
         single_changes(question.model, first.plan, question.cluster, question.headroom, question.offload)) {
      bool const known = std::any_of(result.begin(), result.end(),
                                     [&](Change const& c) { return c.plan == second.plan; });
      second.what = first.what + " and " + second.what;
      if (!known)
        result.push_back(std::move(second));
    }
  return result;
}

std::int64_t largest_micro_batch(Question const& question, Plan plan) {
  std::int64_t largest = plan.micro_batch;
  for (plan.micro_batch *= 2; check(question.model, plan).empty(); plan.micro_batch *= 2) {
    if (changed(question, "", plan).fit != Fit::fits)
      break;
    largest = plan.micro_batch;
  }
  return largest;
}

} // namespace

std::vector<Change> single_changes(Model const& model, Plan const& plan, Cluster const& cluster, double headroom,
                                   bool offload) {
  Question const question{model, cluster, headroom, offload};
  std::vector<Change> changes;
  add_recompute(changes, question, plan);
  add_switches(changes, question, plan);
  if (offload)
    add_offload(changes, question, plan);
  add_degrees(changes, question, plan);
  return changes;
}

FitVerdict fit_verdict(Model const& model, Plan const& plan, Cluster const& cluster, double headroom, bool offload) {
  Question const question{model, cluster, headroom, offload};
  FitVerdict verdict;
  verdict.report = simulate(model, plan, cluster, {.headroom = headroom});
  verdict.step = step_time(model, plan, cluster);
  if (verdict.report.fit == Fit::fits) {
    verdict.largest_micro_batch = largest_micro_batch(question, plan);
    return verdict;
  }
  std::vector<Change> tried = single_changes(model, plan, cluster, headroom, offload);
  verdict.changes = cheapest(question, tried);
  verdict.changes_at_once = 1;
  if (verdict.changes.empty()) {
    std::vector<Change> const pairs = double_changes(question, tried);
    verdict.changes = cheapest(question, pairs);
    verdict.changes_at_once = 2;
    tried.insert(tried.end(), pairs.begin(), pairs.end());
  }
  verdict.tried = tried.size();
  if (verdict.changes.empty()) {
    verdict.closest = chain(question, single_changes(model, plan, cluster, headroom, offload), verdict.changes_at_once);
    if (verdict.closest && verdict.closest->fit == Fit::fits)
      verdict.changes = cheapest(question, {*verdict.closest});
    else
      verdict.changes_at_once = 0;
  }
  return verdict;
}

} // namespace foreplan

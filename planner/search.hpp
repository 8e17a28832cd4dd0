// The search for the best plan: every legal plan is looked at, and where full recompute fits and none does not, the one
// with as few recomputed blocks as fit. Memory first; what fits is timed by the fast engine on
// segments, in the order of its lower bound, until no bound is below the last of the plans to keep: their order is proven
// for that engine, not sampled. Of these, pipelines whose blocks can be shared out better are tried with a layout too. The best are run again on SimGrid, kernel by kernel.
#pragma once

#include "planner/search_space.hpp"
#include "planner/simulate.hpp"

#include <atomic>
#include <functional>
#include <optional>
#include <vector>

namespace foreplan {

struct SearchRequest {
  Model model;
  Cluster cluster;
  std::int64_t sequence_length = 0;
  std::int64_t global_batch = 0;
  double headroom = 0.14;
  int finalists = 3;
  std::size_t keep = 10;                   // plans whose order must be proven
  unsigned threads = 0;                    // 0: as many as the machine has
  std::vector<Constraint> constraints;     // on the plans to look at
  std::optional<Framework> framework;      // that runs them
  bool offload = false;                    // also plans with something outside the device
  bool quantized = false;                  // also ZeRO++
  bool split_schedules = false;            // also zero-bubble schedules
  std::size_t explain = 0;                 // of the ranked plans: how many to report, to say why they lose
  std::atomic<bool> const* stop = nullptr; // true: end soon with the best so far
};

struct Candidate {
  Plan plan;
  Bytes peak;
  Fit fit = Fit::too_large;
  Seconds bound; // no step is faster
  Seconds step;  // nought: not timed
};

struct SearchResult {
  std::int64_t enumerated = 0; // combinations
  std::int64_t legal = 0;
  std::int64_t too_large = 0;
  std::int64_t fit = 0;
  std::int64_t lack_headroom = 0;
  std::int64_t partly_recomputed = 0; // further plans: with only as many blocks recomputed as make them fit
  std::vector<Candidate> ranked;      // that fit and were timed, fastest first; the first `keep` are the fastest of all
  std::vector<Candidate> borderline;  // that lack headroom, likewise (the first 3)
  std::optional<Candidate> nearest_miss; // when none fits: the one that needs least
  std::vector<Report> finalists;         // of `ranked`, on SimGrid, fastest first
  std::vector<Rejection> rejected;
  std::vector<Report> reports; // of the first of `ranked`, by the engine that ranked them
  bool stopped = false;        // before all was looked at: then nothing is proven
};

// When nothing fits: the fewest nodes, in doublings, with which a plan with the least memory would fit; 0: none up to 1024.
int nodes_that_fit(SearchRequest const& request);

// `progress` is called now and then, from one thread at a time, with plans done, plans in all and the best step so far.
using Progress = std::function<void(std::size_t done, std::size_t all, Seconds best)>;

// The answer does not depend on the number of threads.
SearchResult search(SearchRequest const& request, Progress const& progress = {});

} // namespace foreplan

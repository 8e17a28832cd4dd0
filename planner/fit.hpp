// Does a plan fit, and if not, which changes make it fit and what do they cost in speed?
#pragma once

#include "planner/simulate.hpp"

#include <optional>
#include <string>
#include <vector>

namespace foreplan {

// The plan with something changed, on as many devices.
struct Change {
  std::string what; // "full recompute", "tp 4, dp 2"
  Plan plan;
  Bytes peak;
  Fit fit = Fit::too_large;
  Seconds step; // nought: not timed
};

// Legal plans that differ from this one in one thing: recompute (all blocks, or as few as make it fit), ZeRO, sequence
// parallelism, micro-batch, attention, schedule, chunks, gradients' precision, one degree raised at the cost of
// another, or, when `offload` is allowed, what lives on the host.
std::vector<Change> single_changes(Model const& model, Plan const& plan, Cluster const& cluster, double headroom,
                                   bool offload = false);

struct FitVerdict {
  Report report;
  Seconds step;                // the plan's, as if its memory were there
  std::vector<Change> changes; // that make it fit with headroom, cheapest first
  int changes_at_once = 0;     // 1; 2 if no single change is enough; more if those are not; 0: none found, or needed
  std::size_t tried = 0;
  std::optional<Change> closest; // when two at once are not enough: the changes that save most, one after the other
  std::int64_t largest_micro_batch = 0; // of a plan that fits: that would still fit, in doublings
};
FitVerdict fit_verdict(Model const& model, Plan const& plan, Cluster const& cluster, double headroom,
                       bool offload = false);

} // namespace foreplan

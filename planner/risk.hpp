// What may make a step longer than its prediction, as runs have shown without a mechanism being known.
#pragma once

#include "cluster/cluster.hpp"
#include "plan/plan.hpp"
#include "units/quantity.hpp"

#include <string>
#include <vector>

namespace foreplan {

// Near the limit the allocator gives up cached blocks and asks the driver for new ones. All ten runs of the Ultra-Scale
// sweep with 70 GiB and more of the 78 usable took 2.8 to 7.6 times as long as predicted (notes: accuracy.md, section 2).
inline constexpr double cliff_share = 0.90; // of the usable memory
inline constexpr double cliff_factor = 4;
bool near_cliff(Bytes needed, Bytes usable);

// Over EFA, plans with tp and pp, or with tp over nodes, may lose time in every micro-batch, whatever its size, in
// proportion to tp; the same plan may or may not be hit.
bool may_be_slow(Plan const& plan, Cluster const& cluster);
// What such plans of the sweep lost on 2 to 16 nodes, the median, in seconds a micro-batch and tp. Half of the plans on 2
// nodes, two thirds on 16 and nearly all on 32 and more took 1.3 times as long as predicted, or longer.
inline constexpr double slow_mode_loss = 0.015;

// The predicted step with what these two are expected to add: what plans should be ranked by.
Seconds with_risk(Seconds step, Plan const& plan, Cluster const& cluster, Bytes needed, double loss = slow_mode_loss);

// In words; empty: none.
std::string risk_text(Plan const& plan, Cluster const& cluster, Bytes needed, Bytes usable);

} // namespace foreplan

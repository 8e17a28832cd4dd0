#include "planner/risk.hpp"

#include "planner/simulate.hpp"
#include "units/text.hpp"

#include <fmt/format.h>

namespace foreplan {

namespace {

bool is_tp_over_nodes(Plan const& plan, Cluster const& cluster) { return plan.tp > cluster.profile.node.devices; }

} // namespace

bool near_cliff(Bytes needed, Bytes usable) { return needed > usable * cliff_share; }

bool may_be_slow(Plan const& plan, Cluster const& cluster) {
  bool const efa = cluster.profile.fabric && cluster.profile.fabric->kind == FabricKind::efa;
  bool const several = plan.world_size() > cluster.profile.node.devices;
  return efa && several && ((plan.tp > 1 && plan.pp > 1) || is_tp_over_nodes(plan, cluster));
}

Seconds with_risk(Seconds step, Plan const& plan, Cluster const& cluster, Bytes needed, double loss) {
  if (near_cliff(needed, usable_memory(cluster.profile)))
    step = step * cliff_factor;
  if (may_be_slow(plan, cluster))
    step += Seconds(loss * plan.tp * static_cast<double>(plan.micro_batches()));
  return step;
}

std::string risk_text(Plan const& plan, Cluster const& cluster, Bytes needed, Bytes usable) {
  std::string text;
  if (near_cliff(needed, usable) && needed <= usable)
    text += fmt::format(
        "Risk: with {} of {} taken, retries of the allocator may make the step several times as long.\n",
        to_string(needed), to_string(usable));
  if (may_be_slow(plan, cluster))
    text += fmt::format("Risk: over EFA, plans with {} have lost time in every micro-batch on one run in two and more "
                        "(Ultra-Scale sweep).\n",
                        is_tp_over_nodes(plan, cluster) ? "tp over nodes" : "tp and pp");
  return text;
}

} // namespace foreplan

// A lower bound on the step time of a plan, found without compiling its step.
#pragma once

#include "cluster/cluster.hpp"
#include "plan/process_groups.hpp"

#include <deque>
#include <utility>

namespace foreplan {

// Device seconds of one layer, forward and backward, when nothing runs beside it.
struct LayerTimes {
  Seconds forward;
  Seconds backward;
};

struct PlanLayers {
  LayerTimes embedding, block, recomputed_block, head;
};

// Admissible: no step is faster on the engine. A stage is busy with all its micro-batches, one layer after another at
// their times alone; it cannot begin before the stages in front of it have passed it the first micro-batch, and these
// have their last backward still before them when it ends. Times of layers are kept between calls (by what they depend
// on), so one object serves one model and cluster; one thread at a time.
class LowerBound {
public:
  LowerBound(Model const& model, Cluster const& cluster) : model_(model), cluster_(cluster) {}
  Seconds operator()(Plan const& plan);
  PlanLayers const& layers_of_plan(Plan const& plan);

private:
  LayerTimes times_of(PlanLayers const& layers, Plan const& plan, LayerRange chunk) const;

  Model model_;
  Cluster cluster_;
  std::deque<std::pair<Plan, PlanLayers>> known_; // by smallest_with_same_layers(); a deque keeps its places
};

} // namespace foreplan

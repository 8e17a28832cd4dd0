// A lower bound on the step time of a plan, found without compiling its step.
#pragma once

#include "cluster/cluster.hpp"
#include "plan/process_groups.hpp"

#include <map>
#include <tuple>

namespace foreplan {

// Device seconds of one layer, forward and backward, when nothing runs beside it.
struct LayerTimes {
  Seconds forward;
  Seconds backward;
};

// Admissible: no step is faster on the engine. A stage is busy with all its micro-batches, one layer after another at
// their times alone; it cannot begin before the stages in front of it have passed it the first micro-batch, and these
// have their last backward still before them when it ends. Times of layers are kept between calls (by what they depend
// on), so one object serves one model and cluster; one thread at a time.
class LowerBound {
public:
  LowerBound(Model const& model, Cluster const& cluster) : model_(model), cluster_(cluster) {}
  Seconds operator()(Plan const& plan);

private:
  struct Layers {
    LayerTimes embedding, block, recomputed_block, head;
  };
  using Key = std::tuple<int, int, ContextParallel, int, int, bool, std::int64_t, Recompute, Attention, bool, DType>;

  Layers const& layers_for(Plan const& plan);
  LayerTimes times_of(Layers const& layers, Plan const& plan, LayerRange chunk) const;

  Model model_;
  Cluster cluster_;
  std::map<Key, Layers> known_;
};

} // namespace foreplan

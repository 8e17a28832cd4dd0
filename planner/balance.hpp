// Blocks for the parts of a pipeline, so that no stage is longer than it must be.
#pragma once

#include "planner/bounds.hpp"

#include <vector>

namespace foreplan {

// The layout (Plan::layout) whose slowest stage is as fast as blocks allow: the steady state of every schedule runs at
// its pace. Times are those of the layers alone, forward and backward, embedding, head and recomputed blocks included.
// Each block goes to the stage with least to do (exact for equal blocks), within it to the chunk with fewest, among
// equals to the last: it holds the fewest activations under 1F1B.
std::vector<int> balanced_layout(Model const& model, Plan const& plan, LowerBound& times);

} // namespace foreplan

// Where a collective's time comes from, in words.
#pragma once

#include "timing/collectives/curve.hpp"

#include <string>
#include <vector>

namespace foreplan {

// The parameters that decide the time: those of which a change of 1 % moves it by more than 0.01 %.
std::vector<std::size_t> deciding_parameters(CollectiveOp op, GroupShape const& shape, CollectiveModel const& model,
                                             double bytes);

// Algorithm and protocol, the formula with its numbers, the parameters behind it, the next best choice, and the measured
// curves that corrected it. A few lines, each ended.
std::string explain_collective(CollectiveOp op, GroupShape const& shape, CollectiveModel const& model, double bytes);

} // namespace foreplan

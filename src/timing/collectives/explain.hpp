// Where a collective's time comes from, in words.
#pragma once

#include "timing/collectives/curve.hpp"

#include <string>

namespace foreplan {

// Algorithm and protocol, the formula with its numbers, the parameters behind it, the next best choice, and the measured
// curves that corrected it. A few lines, each ended.
std::string explain_collective(CollectiveOp op, GroupShape const& shape, CollectiveModel const& model, double bytes);

} // namespace foreplan

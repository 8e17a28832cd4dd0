// The block "collectives" of a hardware profile, from published points and a user's own.
#pragma once

#include "validate/calibrate/collectives_accuracy.hpp"

namespace foreplan {

struct CollectiveCalibration {
  CollectiveFit fit;
  CollectiveModel model;
  std::string source; // what it rests on, for the profile
};

// Parameters fitted to all points of the chip's fabric, published and own; residuals of the chip's curves and, with less
// weight, of the fabric's other chips; band of left-out curves. Throws InputError for a chip without a fabric.
//
// `topology`: of the node, where it is not that of the measured nodes (sixteen V100 behind switches): rates and latencies
// of the links then stand, residuals do not.
CollectiveCalibration calibrate_collectives(std::string const& chip, std::vector<MeasuredCollective> const& own = {},
                                            std::optional<ScaleUp> topology = std::nullopt);

// JSON of the block as a member of a profile, for with_member(): "collectives": {...}
std::string collectives_block(CollectiveCalibration const& calibration);

// Name, value, prior, range, and the number of points that moved it: of a calibration, or as read from a profile.
std::string collective_parameter_table(CollectiveModel const& model);

} // namespace foreplan

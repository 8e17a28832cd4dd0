// Fits the parameters of one fabric and library to measured curves: soft-L1 loss on log(measured / modelled), Gaussian
// priors on the logarithms of the parameters; deterministic.
#pragma once

#include "validate/calibrate/collectives_points.hpp"

#include <vector>

namespace foreplan {

struct CollectiveFit {
  int fabric = 0;
  CollectiveValues prior{};
  CollectiveValues values{};
  // How many points know of a parameter: those whose time changes by more than 1 % when it is a quarter larger.
  std::array<int, collective::count> points{};
};

// Points of other fabrics, of no use (usable) or of trust C are left out. Begins at `start`, or at the priors.
CollectiveFit fit_collectives(std::vector<MeasuredCollective> const& points, int fabric,
                              CollectiveValues const* start = nullptr);

double modelled_seconds(MeasuredCollective const& point, CollectiveValues const& values);

// The measured curves around a prediction: log(measured / modelled) by octave. `chip` and `hardware` say for whom: other
// chips of the fabric and other clusters count less.
std::vector<CollectiveResidual> residuals_of(std::vector<MeasuredCollective> const& points, CollectiveFit const& fit,
                                             std::string_view chip, std::string_view hardware);

bool is_trusted(MeasuredCollective const& point);   // A or B, and not marked as unfit
bool serves_a_fit(MeasuredCollective const& point); // and what carried it is known

} // namespace foreplan

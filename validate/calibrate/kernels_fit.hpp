// Fits the kernel parameters of one chip to measured kernels, all classes together.
#pragma once

#include "validate/calibrate/fit.hpp"
#include "validate/calibrate/kernels_points.hpp"

#include <string>
#include <utility>
#include <vector>

namespace foreplan {

// Another machine with the same chip may run at another clock: a lower power limit. Its clock is one more parameter.
struct MachineClock {
  std::string machine;
  double clock = 1; // relative to the chip's clock under load
};

struct KernelFit {
  Chip chip;
  KernelParameters parameters;
  std::vector<MachineClock> clocks;
  std::vector<FitParameter> priors; // kernel::count parameters, then the clocks
  FitResult result;
  std::vector<ProductResidual> residuals;     // log(measured / modelled) of the rows that are one product each
  std::vector<std::string> residual_machines; // whose each is
};

// Rows of one chip, those of no use or of trust C left out. Begins at `start`, or at the priors. The first machine with
// the most rows sets the chip's clock.
KernelFit fit_kernels(KnownChip const& chip, std::vector<MeasuredKernel const*> const& rows,
                      KernelFit const* start = nullptr);

// Rows of other machines count less for what a machine measures: their clocks and libraries differ. "": all count alike.
std::vector<ProductResidual> residuals_for(KernelFit const& fit, std::string const& machine);

// With the correction by the fit's rows.
std::vector<double> predicted_seconds(KernelFit const& fit, std::vector<MeasuredKernel const*> const& rows);

bool serves_a_fit(MeasuredKernel const& row);

// How well a chip's kernels are predicted: each family by a fit without it.
struct KernelAccuracy {
  KernelFit fit;                                  // of all rows
  std::vector<MeasuredKernel const*> rows;        // that are judged
  std::vector<double> log_ratios;                 // log(predicted / measured) of each, its family left out
  std::array<double, kernel::class_count> band{}; // spread of these, by class
};

// Families of `judged` are left out, one after the other, of the fit to `rows` (which hold them too).
KernelAccuracy leave_families_out(KnownChip const& chip, std::vector<MeasuredKernel const*> const& rows,
                                  std::vector<MeasuredKernel const*> const& judged);

} // namespace foreplan

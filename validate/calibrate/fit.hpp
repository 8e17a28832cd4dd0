// Robust least squares for models with few positive parameters: minimises, over the logarithms of the parameters,
//   sum over rows of 2 (sqrt(1 + (r / scale)^2) - 1)  +  sum over parameters of ((log value - log prior) / width)^2
// with r = log(modelled / measured). Deterministic; Levenberg and Marquardt's steps within the ranges.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace foreplan {

struct FitParameter {
  double prior = 1;
  double width = 1; // standard deviation of the prior, of the logarithm
  double lowest = 0;
  double highest = 0;
};

struct FitResult {
  std::vector<double> values;
  std::vector<double> spread; // standard deviation of the logarithm that rows and prior leave
  std::vector<int> rows;      // rows whose time follows the parameter: 1 % of it moves them by more than 0.05 %
  double cost = 0;
  int iterations = 0;
};

struct FitOptions {
  double scale = 0.05; // residuals well above count linearly
  int most_iterations = 40;
  double tolerance = 1e-7; // relative fall of the cost at which it ends
  std::span<double const> start;
};

// Writes r of every row for the given values.
using LogRatios = std::function<void(std::span<double const> values, std::span<double> log_ratios)>;

FitResult fit(std::span<FitParameter const> parameters, std::size_t rows, LogRatios const& model,
              FitOptions const& options = {});

} // namespace foreplan

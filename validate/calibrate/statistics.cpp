#include "validate/calibrate/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace foreplan {

double quantile(std::vector<double> values, double fraction) {
  std::ranges::sort(values);
  double const rank = fraction * static_cast<double>(values.size() - 1);
  auto const below = static_cast<std::size_t>(rank);
  std::size_t const above = std::min(below + 1, values.size() - 1);
  return values[below] + (rank - static_cast<double>(below)) * (values[above] - values[below]);
}

ErrorSummary summarise(std::vector<double> const& log_ratios) {
  if (log_ratios.empty())
    return {};
  std::vector<double> errors;
  for (double ratio : log_ratios)
    errors.push_back(std::abs(std::expm1(ratio)));
  double const mean = std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(errors.size());
  return {static_cast<int>(log_ratios.size()), quantile(errors, 0.5), quantile(errors, 0.9),
          std::expm1(quantile(log_ratios, 0.5)), mean};
}

double log_spread(std::vector<double> const& log_ratios) {
  constexpr double one_sigma = 0.6827;
  std::vector<double> magnitudes;
  for (double ratio : log_ratios)
    magnitudes.push_back(std::abs(ratio));
  return magnitudes.empty() ? 0 : quantile(magnitudes, one_sigma);
}

} // namespace foreplan

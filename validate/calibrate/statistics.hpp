// Statistics of prediction errors.
#pragma once

#include <vector>

namespace foreplan {

// The value below which a fraction of the values lies, linear between ranks. `values` is not empty.
double quantile(std::vector<double> values, double fraction);

// Of log(predicted / measured): errors are |predicted / measured - 1|.
struct ErrorSummary {
  int count = 0;
  double median = 0;
  double p90 = 0;
  double bias = 0; // median of predicted / measured - 1
  double mean = 0;
};
ErrorSummary summarise(std::vector<double> const& log_ratios);

// Standard deviation of a normal distribution with the same two thirds around zero.
double log_spread(std::vector<double> const& log_ratios);

} // namespace foreplan

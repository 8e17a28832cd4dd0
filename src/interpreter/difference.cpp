#include "interpreter/difference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace foreplan {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double relative_difference(std::vector<double> const& values, std::vector<double> const& reference) {
  if (values.size() != reference.size())
    return infinity;
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    difference += (values[i] - reference[i]) * (values[i] - reference[i]);
    norm += reference[i] * reference[i];
  }
  return std::sqrt(difference / norm);
}

double larger(double a, double b) { return std::isnan(b) ? infinity : std::max(a, b); }

} // namespace

Reference reference_of(Program const& program, TrainingParameters const& training, int steps) {
  Interpreter<double> interpreter(program, training);
  for (int step = 0; step < steps; ++step)
    interpreter.step({});
  return {interpreter.loss(), interpreter.weights(), steps};
}

double relative_difference(Reference const& result, Reference const& reference) {
  double largest = larger(0, std::abs(result.loss - reference.loss) / std::abs(reference.loss));
  if (result.weights.size() != reference.weights.size())
    return infinity;
  for (auto const& [key, values] : reference.weights) {
    auto const found = result.weights.find(key);
    largest = larger(largest, found == result.weights.end() ? infinity : relative_difference(found->second, values));
  }
  return largest;
}

bool differs(Program const& program, Reference const& reference, TrainingParameters const& training, int orders,
             double tolerance) {
  auto same = [&](Interpreter<double> const& interpreter) {
    return std::abs(interpreter.loss() - reference.loss) <= tolerance * std::abs(reference.loss) &&
           relative_difference({interpreter.loss(), interpreter.weights()}, reference) <= tolerance &&
           interpreter.replica_difference() <= tolerance;
  };
  try {
    for (Reuse reuse : {Reuse::last_freed, Reuse::same_size}) {
      Interpreter<double> interpreter(program, training, reuse);
      int const count = reuse == Reuse::last_freed ? (orders + 1) / 2 : orders / 2;
      for (Order const& order : interpreter.adversarial_orders(count)) {
        interpreter.reset();
        for (int step = 0; step < reference.steps; ++step)
          interpreter.step(order);
        if (!same(interpreter))
          return true;
      }
    }
  } catch (std::runtime_error const&) {
    return true; // stuck, or out of bounds
  }
  return false;
}

} // namespace foreplan

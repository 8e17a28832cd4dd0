#include "validate/calibrate/fit.hpp"

#include <Eigen/Dense>

#include <algorithm>
#include <cmath>

namespace foreplan {

namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

struct Problem {
  std::span<FitParameter const> parameters;
  LogRatios const& model;
  double scale;
  VectorXd prior, width, lowest, highest; // of the logarithms
};

VectorXd residuals(Problem const& problem, VectorXd const& x, Index rows) {
  std::vector<double> values(static_cast<std::size_t>(x.size()));
  for (Index i = 0; i < x.size(); ++i)
    values[static_cast<std::size_t>(i)] = std::exp(x[i]);
  VectorXd r(rows);
  problem.model(values, {r.data(), static_cast<std::size_t>(rows)});
  return r / problem.scale;
}

double cost(Problem const& problem, VectorXd const& x, VectorXd const& r) {
  double const rows = 2 * ((r.array().square() + 1).sqrt() - 1).sum();
  return rows + ((x - problem.prior).array() / problem.width.array()).square().sum();
}

MatrixXd jacobian(Problem const& problem, VectorXd const& x, VectorXd const& r) {
  constexpr double step = 1e-3; // wide enough to see past the kinks where another tile becomes the best
  MatrixXd j(r.size(), x.size());
  for (Index i = 0; i < x.size(); ++i) {
    VectorXd moved = x;
    double const signed_step = x[i] + step <= problem.highest[i] ? step : -step;
    moved[i] += signed_step;
    j.col(i) = (residuals(problem, moved, r.size()) - r) / signed_step;
  }
  return j;
}

VectorXd logarithms(std::span<FitParameter const> parameters, double FitParameter::*field) {
  VectorXd result(static_cast<Index>(parameters.size()));
  for (std::size_t i = 0; i < parameters.size(); ++i)
    result[static_cast<Index>(i)] = std::log(parameters[i].*field);
  return result;
}

// Normal equations of the weighted rows and the prior.
struct Normal {
  MatrixXd matrix;
  VectorXd gradient; // half of the cost's
};

Normal normal(Problem const& problem, VectorXd const& x, VectorXd const& r, MatrixXd const& j) {
  VectorXd const weight = (r.array().square() + 1).rsqrt().matrix();
  VectorXd const precision = problem.width.array().square().inverse().matrix();
  Normal result;
  result.matrix = j.transpose() * weight.asDiagonal() * j;
  result.matrix.diagonal() += precision;
  result.gradient = j.transpose() * weight.cwiseProduct(r) + precision.cwiseProduct(x - problem.prior);
  return result;
}

// A damped step that stays in the ranges; parameters at an edge that want out stay there.
VectorXd step_of(Problem const& problem, VectorXd const& x, Normal normal, double damping) {
  for (Index i = 0; i < x.size(); ++i) {
    bool const stuck = (x[i] <= problem.lowest[i] && normal.gradient[i] > 0) ||
                       (x[i] >= problem.highest[i] && normal.gradient[i] < 0);
    if (!stuck)
      continue;
    normal.matrix.row(i).setZero();
    normal.matrix.col(i).setZero();
    normal.matrix(i, i) = 1;
    normal.gradient[i] = 0;
  }
  normal.matrix.diagonal() *= 1 + damping;
  VectorXd const next = x - normal.matrix.ldlt().solve(normal.gradient);
  return next.cwiseMax(problem.lowest).cwiseMin(problem.highest);
}

FitResult result_of(Problem const& problem, VectorXd const& x, VectorXd const& r, MatrixXd const& j) {
  FitResult result;
  MatrixXd const covariance = normal(problem, x, r, j).matrix.inverse();
  constexpr double follows = 0.05;
  for (Index i = 0; i < x.size(); ++i) {
    result.values.push_back(std::exp(x[i]));
    result.spread.push_back(std::sqrt(covariance(i, i)));
    result.rows.push_back(static_cast<int>((j.col(i).array().abs() * problem.scale > follows).count()));
  }
  result.cost = cost(problem, x, r);
  return result;
}

} // namespace

FitResult fit(std::span<FitParameter const> parameters, std::size_t rows, LogRatios const& model,
              FitOptions const& options) {
  Problem const problem{parameters,
                        model,
                        options.scale,
                        logarithms(parameters, &FitParameter::prior),
                        [&] {
                          VectorXd width(static_cast<Index>(parameters.size()));
                          for (std::size_t i = 0; i < parameters.size(); ++i)
                            width[static_cast<Index>(i)] = parameters[i].width;
                          return width;
                        }(),
                        logarithms(parameters, &FitParameter::lowest),
                        logarithms(parameters, &FitParameter::highest)};
  VectorXd x = problem.prior;
  for (std::size_t i = 0; i < options.start.size(); ++i)
    x[static_cast<Index>(i)] = std::log(options.start[i]);
  x = x.cwiseMax(problem.lowest).cwiseMin(problem.highest);

  VectorXd r = residuals(problem, x, static_cast<Index>(rows));
  double now = cost(problem, x, r);
  MatrixXd j = jacobian(problem, x, r);
  double damping = 1e-3;
  constexpr double hopeless = 1e6;
  int iterations = 0;
  while (iterations < options.most_iterations && damping < hopeless) {
    ++iterations;
    VectorXd const next = step_of(problem, x, normal(problem, x, r, j), damping);
    VectorXd const next_r = residuals(problem, next, r.size());
    double const next_cost = cost(problem, next, next_r);
    if (!(next_cost < now)) {
      damping = std::max(damping * 10, 1e-3);
      continue;
    }
    bool const done = now - next_cost < options.tolerance * now;
    x = next;
    r = next_r;
    now = next_cost;
    damping /= 10;
    if (done)
      break;
    j = jacobian(problem, x, r);
  }
  FitResult result = result_of(problem, x, r, jacobian(problem, x, r));
  result.iterations = iterations;
  return result;
}

} // namespace foreplan

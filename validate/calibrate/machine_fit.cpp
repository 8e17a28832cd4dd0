#include "validate/calibrate/machine_fit.hpp"

#include <Eigen/Dense>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

namespace foreplan {
namespace {

constexpr int parts = 4; // fixed, per flop, per byte, per byte beyond the cached ones

// Ring steps in which a communication pays its fixed part; 1 for a kernel.
double steps_of(MeasuredOp const& row) {
  if (row.members <= 1)
    return 1;
  return (row.op == "all_reduce" ? 2.0 : 1.0) * (row.op == "send" || row.op == "receive" ? 1 : row.members - 1);
}

// Rows of the relative problem: row * parts = 1, with parts scaled so that they are of like size.
Eigen::MatrixXd equations(std::vector<MeasuredOp> const& rows, double cached) {
  Eigen::MatrixXd a(static_cast<Eigen::Index>(rows.size()), parts);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    MeasuredOp const& row = rows[i];
    a.row(static_cast<Eigen::Index>(i)) << steps_of(row), row.flops, row.bytes, std::max(0.0, row.bytes - cached);
    a.row(static_cast<Eigen::Index>(i)) /= row.seconds;
  }
  return a;
}

struct Solution {
  Eigen::Vector4d x = Eigen::Vector4d::Zero();
  double error = INFINITY; // weighted sum of squares
};

// Least squares with x >= 0: the best of all subsets of parts that come out positive.
Solution solve(Eigen::MatrixXd const& a, Eigen::VectorXd const& weights) {
  Solution best;
  auto const most = std::max<int>(1, static_cast<int>(a.rows()) / 3); // parts that so few rows can tell apart
  for (int subset = 1; subset < 1 << parts; ++subset) {
    if (std::popcount(static_cast<unsigned>(subset)) > most)
      continue;
    std::vector<Eigen::Index> chosen;
    for (int part = 0; part < parts; ++part)
      if ((subset >> part & 1) != 0 && a.col(part).cwiseAbs().maxCoeff() > 0)
        chosen.push_back(part);
    if (chosen.empty())
      continue;
    Eigen::MatrixXd b = weights.asDiagonal() * a(Eigen::all, chosen);
    Eigen::VectorXd const scale = b.colwise().norm();
    b = b * scale.cwiseInverse().asDiagonal();
    Eigen::VectorXd const x = b.colPivHouseholderQr().solve(weights).cwiseQuotient(scale);
    if (x.minCoeff() < 0)
      continue;
    Solution one;
    for (std::size_t i = 0; i < chosen.size(); ++i)
      one.x[chosen[i]] = x[static_cast<Eigen::Index>(i)];
    one.error = (weights.asDiagonal() * (a * one.x - Eigen::VectorXd::Ones(a.rows()))).squaredNorm();
    if (one.error < best.error * (1 - 1e-9))
      best = one;
  }
  return best;
}

// Short ops count less: their time is little of a step's, and much of it the clock's.
Eigen::VectorXd base_weights(std::vector<MeasuredOp> const& rows) {
  constexpr double short_op = 20e-6;
  Eigen::VectorXd weights(static_cast<Eigen::Index>(rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i)
    weights[static_cast<Eigen::Index>(i)] = rows[i].seconds / (rows[i].seconds + short_op);
  return weights;
}

Solution solve_robustly(Eigen::MatrixXd const& a, Eigen::VectorXd const& base) {
  constexpr double far = 0.15;
  Solution solution = solve(a, base);
  for (int round = 0; round < 3; ++round) {
    Eigen::VectorXd weights = base;
    Eigen::VectorXd const errors = (a * solution.x - Eigen::VectorXd::Ones(a.rows())).cwiseAbs();
    for (Eigen::Index i = 0; i < weights.size(); ++i)
      weights[i] *= std::sqrt(std::min(1.0, far / std::max(errors[i], 1e-9)));
    solution = solve(a, weights);
  }
  return solution;
}

double band_of(OpCost const& cost, std::vector<MeasuredOp> const& rows) {
  double sum = 0;
  for (MeasuredOp const& row : rows) {
    double const predicted = cost.seconds(row.flops, row.bytes) + (steps_of(row) - 1) * cost.fixed;
    sum += std::pow(std::log(row.seconds / predicted), 2);
  }
  return std::sqrt(sum / static_cast<double>(rows.size()));
}

} // namespace

OpCost fit_op_cost(std::vector<MeasuredOp> const& rows) {
  Eigen::VectorXd const base = base_weights(rows);
  Solution best;
  double cached = 0;
  constexpr double mega = 1e6;
  for (double size : {0.0, 1 * mega, 2 * mega, 4 * mega, 8 * mega, 16 * mega, 32 * mega}) {
    Solution const solution = solve_robustly(equations(rows, size), base);
    if (solution.error < best.error * 0.95) { // a bend must be worth it
      best = solution;
      cached = size;
    }
  }
  OpCost cost{.op = rows[0].op,
              .dtype = rows[0].dtype,
              .fixed = best.x[0],
              .per_flop = best.x[1],
              .per_byte = best.x[2],
              .cached = best.x[3] > 0 ? cached : 0,
              .per_cold_byte = best.x[3],
              .rows = static_cast<int>(rows.size())};
  cost.band = band_of(cost, rows);
  return cost;
}

OpCosts fit_machine(MachineRows const& rows) {
  std::map<std::pair<std::string, std::string>, std::vector<MeasuredOp>> by_op;
  for (std::vector<MeasuredOp> const* all : {&rows.kernels, &rows.communication})
    for (MeasuredOp const& row : *all)
      by_op[{row.op, row.dtype}].push_back(row);
  OpCosts costs;
  for (auto const& [key, measured] : by_op)
    costs.costs.push_back(fit_op_cost(measured));
  return costs;
}

} // namespace foreplan

#include "validate/calibrate/collectives_fit.hpp"

#include <Eigen/Dense>

#include <algorithm>
#include <map>
#include <string>

namespace foreplan {

bool serves_a_fit(MeasuredCollective const& point) { return point.usable && point.trust != "C"; }

double modelled_seconds(MeasuredCollective const& point, CollectiveValues const& values) {
  Fabric const& fabric = fabrics()[static_cast<std::size_t>(fabric_of(point.chip)->fabric)];
  GroupShape const shape = shape_of(point);
  return collective_time(collective_curve(point.op, shape, fabric.library, fabric.topology, values), point.bytes).seconds;
}

namespace {

// Points of one group and operation, which share a curve of the model.
struct Bundle {
  CollectiveOp op;
  GroupShape shape;
  std::vector<double> bytes;
  std::vector<double> log_seconds;
  std::vector<double> weight;
};

struct Problem {
  Fabric const* fabric;
  CollectiveValues prior;
  std::vector<Bundle> bundles;
  std::vector<std::size_t> free; // parameters that are fitted
  std::size_t points = 0;
};

Problem problem_of(std::vector<MeasuredCollective> const& points, int fabric) {
  Problem problem;
  problem.fabric = &fabrics()[static_cast<std::size_t>(fabric)];
  problem.prior = collective_priors(problem.fabric->library);
  if (!problem.fabric->multicast)
    problem.prior[collective::multicast] = 0;
  for (std::size_t i = 0; i < collective::count; ++i)
    if (problem.prior[i] > 0)
      problem.free.push_back(i);
  std::map<std::string, std::vector<MeasuredCollective const*>> curves;
  for (MeasuredCollective const& point : points)
    if (serves_a_fit(point) && fabric_of(point.chip)->fabric == fabric)
      curves[point.curve].push_back(&point);
  for (auto const& [name, members] : curves) {
    MeasuredCollective const& first = *members.front();
    Bundle bundle{first.op, shape_of(first), {}, {}, {}};
    // A curve of many points, which are not independent, counts as one of twelve.
    double const weight = std::min(2.0, std::sqrt(12.0 / static_cast<double>(members.size())));
    for (MeasuredCollective const* point : members) {
      bundle.bytes.push_back(point->bytes);
      bundle.log_seconds.push_back(std::log(point->seconds));
      bundle.weight.push_back(weight);
    }
    problem.points += members.size();
    problem.bundles.push_back(std::move(bundle));
  }
  return problem;
}

// log(measured / modelled) of all points.
Eigen::VectorXd residuals(Problem const& problem, CollectiveValues const& values) {
  Eigen::VectorXd result(static_cast<Eigen::Index>(problem.points));
  Eigen::Index at = 0;
  for (Bundle const& bundle : problem.bundles) {
    CollectiveCurve const curve =
        collective_curve(bundle.op, bundle.shape, problem.fabric->library, problem.fabric->topology, values);
    for (std::size_t i = 0; i < bundle.bytes.size(); ++i)
      result[at++] = bundle.log_seconds[i] - std::log(collective_time(curve, bundle.bytes[i]).seconds);
  }
  return result;
}

Eigen::VectorXd weights(Problem const& problem) {
  Eigen::VectorXd result(static_cast<Eigen::Index>(problem.points));
  Eigen::Index at = 0;
  for (Bundle const& bundle : problem.bundles)
    for (double weight : bundle.weight)
      result[at++] = weight;
  return result;
}

constexpr double loss_scale = 0.08; // of soft-L1, in the logarithm (notes: accuracy.md, section 6)

double soft_l1(double residual) {
  double const z = residual / loss_scale;
  return 2 * (std::sqrt(1 + z * z) - 1);
}

double prior_distance(Problem const& problem, CollectiveValues const& values, std::size_t parameter) {
  return std::log(values[parameter] / problem.prior[parameter]) / collective_prior_widths()[parameter];
}

double cost(Problem const& problem, Eigen::VectorXd const& weight, CollectiveValues const& values) {
  Eigen::VectorXd const r = residuals(problem, values);
  double sum = 0;
  for (Eigen::Index i = 0; i < r.size(); ++i)
    sum += weight[i] * soft_l1(r[i]);
  for (std::size_t parameter : problem.free)
    sum += std::pow(prior_distance(problem, values, parameter), 2);
  return sum;
}

// Derivatives of the residuals by the logarithms of the free parameters.
Eigen::MatrixXd jacobian(Problem const& problem, CollectiveValues const& values) {
  constexpr double step = 0.01; // large enough to see a change of protocol
  Eigen::MatrixXd result(static_cast<Eigen::Index>(problem.points), static_cast<Eigen::Index>(problem.free.size()));
  for (std::size_t k = 0; k < problem.free.size(); ++k) {
    CollectiveValues more = values, less = values;
    more[problem.free[k]] *= std::exp(step);
    less[problem.free[k]] *= std::exp(-step);
    result.col(static_cast<Eigen::Index>(k)) = (residuals(problem, more) - residuals(problem, less)) / (2 * step);
  }
  return result;
}

} // namespace

CollectiveFit fit_collectives(std::vector<MeasuredCollective> const& points, int fabric, CollectiveValues const* start) {
  Problem const problem = problem_of(points, fabric);
  Eigen::VectorXd const weight = weights(problem);
  CollectiveFit fit{.fabric = fabric, .prior = problem.prior, .values = start ? *start : problem.prior, .points = {}};
  double damping = 1e-2;
  double now = cost(problem, weight, fit.values);
  constexpr int most_steps = 60;
  for (int step = 0; step < most_steps; ++step) {
    Eigen::VectorXd const r = residuals(problem, fit.values);
    Eigen::MatrixXd const j = jacobian(problem, fit.values);
    Eigen::VectorXd robust = weight; // of the quadratic that touches the loss here
    for (Eigen::Index i = 0; i < r.size(); ++i)
      robust[i] /= loss_scale * loss_scale * std::sqrt(1 + std::pow(r[i] / loss_scale, 2));
    Eigen::MatrixXd normal = j.transpose() * robust.asDiagonal() * j;
    Eigen::VectorXd gradient = j.transpose() * robust.asDiagonal() * r;
    for (std::size_t k = 0; k < problem.free.size(); ++k) {
      double const width = collective_prior_widths()[problem.free[k]];
      auto const at = static_cast<Eigen::Index>(k);
      normal(at, at) += 1 / (width * width);
      gradient[at] += prior_distance(problem, fit.values, problem.free[k]) / width;
    }
    bool improved = false;
    for (int attempt = 0; attempt < 8 && !improved; ++attempt) {
      Eigen::MatrixXd damped = normal;
      damped.diagonal() *= 1 + damping;
      Eigen::VectorXd const change = -damped.ldlt().solve(gradient);
      CollectiveValues next = fit.values;
      for (std::size_t k = 0; k < problem.free.size(); ++k)
        next[problem.free[k]] *= std::exp(std::clamp(change[static_cast<Eigen::Index>(k)], -0.5, 0.5));
      double const then = cost(problem, weight, next);
      if (then < now) {
        improved = now - then > 1e-6 * now;
        fit.values = next;
        now = then;
        damping = std::max(1e-6, damping / 5);
        if (!improved)
          attempt = 8;
      } else {
        damping *= 5;
      }
    }
    if (!improved)
      break;
  }
  Eigen::MatrixXd const j = jacobian(problem, fit.values);
  for (std::size_t k = 0; k < problem.free.size(); ++k)
    fit.points[problem.free[k]] = static_cast<int>((j.col(static_cast<Eigen::Index>(k)).array().abs() > 0.01).count());
  return fit;
}

std::vector<CollectiveResidual> residuals_of(std::vector<MeasuredCollective> const& points, CollectiveFit const& fit,
                                             std::string_view chip, std::string_view hardware) {
  constexpr double other_chip = 0.35, other_cluster = 0.5;
  struct Sum {
    MeasuredCollective const* first = nullptr;
    std::map<int, std::pair<double, int>> octaves;
  };
  std::map<std::string, Sum> curves;
  for (MeasuredCollective const& point : points) {
    if (!serves_a_fit(point) || fabric_of(point.chip)->fabric != fit.fabric)
      continue;
    Sum& sum = curves[point.curve];
    if (sum.first == nullptr)
      sum.first = &point;
    auto& [ratio, count] = sum.octaves[static_cast<int>(std::lround(std::log2(point.bytes)))];
    ratio += std::log(point.seconds / modelled_seconds(point, fit.values));
    ++count;
  }
  std::vector<CollectiveResidual> result;
  for (auto const& [name, sum] : curves) {
    CollectiveResidual residual{.op = sum.first->op, .members = sum.first->members, .nodes = shape_of(*sum.first).nodes,
                                .weight = 1, .octaves = {}};
    if (sum.first->chip != chip)
      residual.weight *= other_chip;
    else if (sum.first->hardware != hardware)
      residual.weight *= other_cluster;
    for (auto const& [octave, total] : sum.octaves)
      residual.octaves.push_back({octave, total.first / total.second});
    result.push_back(std::move(residual));
  }
  return result;
}

} // namespace foreplan

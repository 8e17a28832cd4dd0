#include "validate/calibrate/collectives_fit.hpp"

#include "validate/calibrate/fit.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace foreplan {

namespace {
constexpr double loss_scale = 0.08; // of soft-L1, in the logarithm (notes: accuracy.md, section 6)
}

bool is_trusted(MeasuredCollective const& point) {
  return point.usable && point.trust != "C" && fabric_of(point.chip) != nullptr;
}

bool serves_a_fit(MeasuredCollective const& point) {
  // A share of an unknown line rate says nothing.
  return is_trusted(point) && (shape_of(point).nodes == 1 || point.nic_rate > 0);
}

double modelled_seconds(MeasuredCollective const& point, CollectiveValues const& values) {
  CollectiveFabric const& fabric = collective_fabrics()[static_cast<std::size_t>(fabric_of(point.chip)->fabric)];
  GroupShape const shape = shape_of(point);
  return collective_time(collective_curve(point.op, shape, fabric.library, fabric.topology, values), point.bytes)
      .seconds;
}

namespace {

// Points of one curve: of one group and operation.
struct Bundle {
  CollectiveOp op;
  GroupShape shape;
  std::vector<double> bytes;
  std::vector<double> log_seconds;
  double weight = 1;
};

std::vector<Bundle> bundles_of(std::vector<MeasuredCollective> const& points, int fabric) {
  std::map<std::string, Bundle> curves;
  for (MeasuredCollective const& point : points) {
    if (!serves_a_fit(point) || fabric_of(point.chip)->fabric != fabric)
      continue;
    Bundle& bundle = curves.try_emplace(point.curve, Bundle{point.op, shape_of(point), {}, {}, 1}).first->second;
    bundle.bytes.push_back(point.bytes);
    bundle.log_seconds.push_back(std::log(point.seconds));
  }
  std::vector<Bundle> result;
  for (auto& [name, bundle] : curves) {
    // The points of a curve are not independent: many count as twelve, one as two.
    bundle.weight = std::sqrt(std::min(2.0, std::sqrt(12.0 / static_cast<double>(bundle.bytes.size()))));
    result.push_back(std::move(bundle));
  }
  return result;
}

// Parameters that are fitted: those that the fabric has.
std::vector<std::size_t> free_parameters(CollectiveValues const& prior) {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < collective::count; ++i)
    if (prior[i] > 0)
      result.push_back(i);
  return result;
}

// Rows whose time changes by more than 1 % when the parameter is a quarter larger.
int moved_rows(std::vector<double> values, std::size_t parameter, std::size_t rows, LogRatios const& log_ratios) {
  std::vector<double> before(rows), after(rows);
  log_ratios(values, before);
  values[parameter] *= 1.25;
  log_ratios(values, after);
  int count = 0;
  for (std::size_t i = 0; i < rows; ++i)
    count += std::abs(after[i] - before[i]) > 0.01 ? 1 : 0;
  return count;
}

} // namespace

CollectiveFit fit_collectives(std::vector<MeasuredCollective> const& points, int fabric,
                              CollectiveValues const* start) {
  CollectiveFabric const& what = collective_fabrics()[static_cast<std::size_t>(fabric)];
  CollectiveFit result{.fabric = fabric, .prior = collective_priors(what.library), .values = {}, .points = {}};
  if (!what.multicast)
    result.prior[collective::multicast] = 0;
  std::vector<std::size_t> const free = free_parameters(result.prior);
  std::vector<FitParameter> parameters;
  std::vector<double> begin;
  for (std::size_t i : free) {
    double const prior = result.prior[i];
    CollectiveRange const range = collective_ranges()[i];
    parameters.push_back({prior, collective_prior_widths()[i], prior / range.below, prior * range.above});
    begin.push_back(start != nullptr ? (*start)[i] : prior);
  }
  std::vector<Bundle> const bundles = bundles_of(points, fabric);
  std::size_t rows = 0;
  for (Bundle const& bundle : bundles)
    rows += bundle.bytes.size();
  auto const values_of = [&](std::span<double const> values) {
    CollectiveValues all = result.prior;
    for (std::size_t k = 0; k < free.size(); ++k)
      all[free[k]] = values[k];
    return all;
  };
  auto const log_ratios = [&](std::span<double const> values, std::span<double> ratios) {
    CollectiveValues const all = values_of(values);
    std::size_t at = 0;
    for (Bundle const& bundle : bundles) {
      CollectiveCurve const curve = collective_curve(bundle.op, bundle.shape, what.library, what.topology, all);
      for (std::size_t i = 0; i < bundle.bytes.size(); ++i)
        ratios[at++] = bundle.weight *
                       (std::log(collective_time(curve, bundle.bytes[i]).seconds) - bundle.log_seconds[i]);
    }
  };
  std::vector<double> const fitted = fit(parameters, rows, log_ratios, {.scale = loss_scale, .start = begin}).values;
  result.values = values_of(fitted);
  for (std::size_t k = 0; k < free.size(); ++k)
    result.points[free[k]] = moved_rows(fitted, k, rows, log_ratios);
  return result;
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
    CollectiveResidual residual{.op = sum.first->op,
                                .members = sum.first->members,
                                .nodes = shape_of(*sum.first).nodes,
                                .weight = 1,
                                .octaves = {}};
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

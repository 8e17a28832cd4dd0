#include "validate/calibrate/collectives_profile.hpp"

#include "io/input_error.hpp"
#include "report/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

namespace foreplan {

namespace {

// Curves of one operation and group become one, octave by octave.
std::vector<CollectiveResidual> merged(std::vector<CollectiveResidual> const& curves) {
  struct Sum {
    double weight = 0;                                // of the curves
    std::map<int, std::pair<double, double>> octaves; // weighted ratio, weight
  };
  std::map<std::tuple<int, int, int>, Sum> groups;
  for (CollectiveResidual const& curve : curves) {
    Sum& sum = groups[{static_cast<int>(curve.op), curve.members, curve.nodes}];
    sum.weight += curve.weight;
    for (CollectiveResidual::Octave const& octave : curve.octaves) {
      if (octave.log2_bytes < first_octave)
        continue; // below, the curve is flat
      auto& [ratio, weight] = sum.octaves[octave.log2_bytes];
      ratio += curve.weight * octave.log_ratio;
      weight += curve.weight;
    }
  }
  std::vector<CollectiveResidual> result;
  for (auto const& [key, sum] : groups) {
    CollectiveResidual curve{.op = static_cast<CollectiveOp>(std::get<0>(key)),
                             .members = std::get<1>(key),
                             .nodes = std::get<2>(key),
                             .weight = std::min(1.0, sum.weight),
                             .octaves = {}};
    for (auto const& [octave, total] : sum.octaves)
      curve.octaves.push_back({octave, total.first / total.second});
    result.push_back(std::move(curve));
  }
  return result;
}

// The cluster with most rows of the chip, whose curves count in full.
std::string cluster_of(std::vector<MeasuredCollective> const& points, std::string const& chip) {
  std::map<std::string, int> rows;
  for (MeasuredCollective const& point : points)
    if (point.chip == chip && serves_a_fit(point))
      ++rows[point.hardware];
  auto const fewer = [](auto const& a, auto const& b) { return a.second < b.second; };
  return rows.empty() ? std::string() : std::max_element(rows.begin(), rows.end(), fewer)->first;
}

// Of the fabric's curves when left out.
double band_of(std::vector<MeasuredCollective> const& points, int fabric) {
  std::vector<MeasuredCollective> own;
  for (MeasuredCollective const& point : points)
    if (serves_a_fit(point) && fabric_of(point.chip)->fabric == fabric)
      own.push_back(point);
  std::vector<double> ratios;
  for (JudgedCollective const& row : judge_collectives(own, own))
    ratios.push_back(std::log(row.predicted / row.point.seconds));
  return ratios.empty() ? 0 : log_spread(ratios);
}

std::string value_text(CollectiveParameter const& parameter, double value) {
  if (parameter.unit == "us")
    return fmt::format("\"{:.4g} us\"", value * 1e6);
  if (parameter.unit == "KiB")
    return fmt::format("\"{:.4g} KiB\"", value / 1024);
  return fmt::format("{:.4g}", value);
}

std::string list_text(std::vector<std::string> const& items) {
  std::string text;
  for (std::string const& item : items)
    text += (text.empty() ? "" : ", ") + item;
  return '[' + text + ']';
}

std::string residual_text(CollectiveResidual const& curve) {
  std::vector<std::string> sizes, ratios;
  for (CollectiveResidual::Octave const& octave : curve.octaves) {
    sizes.push_back(fmt::format("{}", octave.log2_bytes));
    ratios.push_back(fmt::format("{:.3f}", octave.log_ratio));
  }
  return fmt::format(
      "{{\"op\": \"{}\", \"members\": {}, \"nodes\": {}, \"weight\": {:.3g},\n        \"log2_bytes\": {},\n"
      "        \"log_ratio\": {}}}",
      to_string(curve.op), curve.members, curve.nodes, curve.weight, list_text(sizes), list_text(ratios));
}

} // namespace

CollectiveCalibration calibrate_collectives(std::string const& chip, std::vector<MeasuredCollective> const& own,
                                            std::optional<ScaleUp> topology) {
  FabricOfChip const* known = fabric_of(chip);
  if (known == nullptr)
    throw InputError(fmt::format("chip \"{}\": has no collectives model; valid: {}", chip, collective_chips()));
  std::vector<MeasuredCollective> points = published_collectives();
  std::set<std::string> renewed; // the user's curve in place of a published one of the same name
  for (MeasuredCollective const& point : own)
    renewed.insert(point.curve);
  auto const is_renewed = [&](MeasuredCollective const& point) { return renewed.contains(point.curve); };
  bool const all_published = std::ranges::all_of(own, [&](MeasuredCollective const& point) {
    return std::ranges::any_of(points, [&](auto const& known_point) { return known_point.curve == point.curve; });
  });
  std::erase_if(points, is_renewed);
  points.insert(points.end(), own.begin(), own.end());

  CollectiveFabric const& fabric = collective_fabrics()[static_cast<std::size_t>(known->fabric)];
  CollectiveCalibration result;
  result.fit = fit_collectives(points, known->fabric);
  std::set<std::string> curves;
  int rows = 0;
  for (MeasuredCollective const& point : points)
    if (serves_a_fit(point) && fabric_of(point.chip)->fabric == known->fabric) {
      curves.insert(point.curve);
      ++rows;
    }
  std::string const hardware = cluster_of(own.empty() ? points : own, chip);
  result.model = {.library = fabric.library,
                  .topology = fabric.topology,
                  .values = result.fit.values,
                  .prior = result.fit.prior,
                  .points = result.fit.points,
                  .residuals = merged(residuals_of(points, result.fit, chip, hardware)),
                  .band = band_of(points, known->fabric)};
  if (topology && *topology != fabric.topology) {
    result.model.topology = *topology;
    result.model.residuals.clear();
  }
  result.source = fmt::format("{}: fit to {} points of {} curves{}; validate/calibrate/published/collectives.csv",
                              fabric.name, rows, curves.size(), all_published ? "" : ", own measurements among them");
  return result;
}

std::string collectives_block(CollectiveCalibration const& calibration) {
  CollectiveModel const& model = calibration.model;
  std::string text = fmt::format("\"collectives\": {{\n    \"library\": \"{}\",\n    \"kind\": \"fitted\",\n"
                                 "    \"source\": \"{}\",\n    \"band\": {:.3g},\n    \"parameters\": {{",
                                 to_string(model.library), calibration.source, model.band);
  for (std::size_t i = 0; i < collective::count; ++i) {
    CollectiveParameter const& parameter = collective_parameters()[i];
    text += fmt::format("{}\n      \"{}\": {{\"value\": {}, \"prior\": {}, \"points\": {}}}", i == 0 ? "" : ",",
                        parameter.name, value_text(parameter, model.values[i]),
                        value_text(parameter, calibration.fit.prior[i]), calibration.fit.points[i]);
  }
  text += "\n    },\n    \"residuals\": [";
  for (std::size_t i = 0; i < model.residuals.size(); ++i)
    text += (i == 0 ? "\n      " : ",\n      ") + residual_text(model.residuals[i]);
  return text + "\n    ]\n  }";
}

std::string collective_parameter_table(CollectiveModel const& model) {
  std::vector<std::vector<std::string>> lines{
      {"parameter", "value", "prior", "lowest", "highest", "kind", "points", "meaning"}};
  CollectiveValues const& prior = model.prior;
  for (std::size_t i = 0; i < collective::count; ++i) {
    CollectiveParameter const& parameter = collective_parameters()[i];
    CollectiveRange const range = collective_ranges()[i];
    double const scale = parameter.unit == "us" ? 1e6 : parameter.unit == "KiB" ? 1.0 / 1024 : 1;
    auto const number = [&](double value) {
      return fmt::format("{:.4g}{}{}", value * scale, parameter.unit.empty() ? "" : " ", parameter.unit);
    };
    lines.push_back({std::string(parameter.name), number(model.values[i]), number(prior[i]),
                     number(prior[i] / range.below), number(prior[i] * range.above),
                     is_moved(model, i) ? "fitted" : "prior", fmt::format("{}", model.points[i]),
                     std::string(parameter.meaning)});
  }
  return table(lines);
}

} // namespace foreplan

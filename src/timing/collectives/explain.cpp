#include "timing/collectives/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace foreplan {

namespace {

std::string choice_text(CollectiveLine const& line) {
  return fmt::format("{} {}", to_string(line.algorithm), to_string(line.protocol));
}

std::string value_text(std::size_t parameter, double value) {
  CollectiveParameter const& what = collective_parameters()[parameter];
  double const scale = what.unit == "us" ? 1e6 : what.unit == "KiB" ? 1.0 / 1024 : 1;
  return fmt::format("{} {:.4g}{}{}", what.name, value * scale, what.unit.empty() ? "" : " ", what.unit);
}

std::string parameters_text(CollectiveOp op, GroupShape const& shape, CollectiveModel const& model, double bytes) {
  std::string text;
  for (std::size_t i : deciding_parameters(op, shape, model, bytes))
    text += (text.empty() ? "" : ", ") + value_text(i, model.values[i]);
  return text;
}

// The measured curve of the same operation whose group is nearest.
std::string nearest_text(CollectiveOp op, GroupShape const& shape, CollectiveModel const& model) {
  CollectiveResidual const* nearest = nullptr;
  double least = 1e30;
  for (CollectiveResidual const& curve : model.residuals) {
    if (curve.op != op)
      continue;
    double const distance = std::abs(std::log2(static_cast<double>(curve.members) / shape.members)) +
                            std::abs(std::log2(static_cast<double>(curve.nodes) / shape.nodes));
    if (distance < least) {
      least = distance;
      nearest = &curve;
    }
  }
  return nearest == nullptr ? "none of this operation"
                            : fmt::format("{} on {} ranks of {} node{}, {} sizes", to_string(op), nearest->members,
                                          nearest->nodes, nearest->nodes == 1 ? "" : "s", nearest->octaves.size());
}

} // namespace

std::vector<std::size_t> deciding_parameters(CollectiveOp op, GroupShape const& shape, CollectiveModel const& model,
                                             double bytes) {
  auto const time_of = [&](CollectiveValues const& values) {
    return collective_time(collective_curve(op, shape, model.library, model.topology, values), bytes).seconds;
  };
  constexpr double step = 1.01;
  double const time = time_of(model.values);
  std::vector<std::size_t> deciding;
  for (std::size_t i = 0; i < collective::count; ++i) {
    CollectiveValues changed = model.values;
    changed[i] *= step;
    if (std::abs(time_of(changed) / time - 1) > 0.01 * (step - 1))
      deciding.push_back(i);
  }
  return deciding;
}

std::string explain_collective(CollectiveOp op, GroupShape const& shape, CollectiveModel const& model, double bytes) {
  CollectiveCurve const curve = collective_curve(op, shape, model);
  std::vector<CollectiveLine> lines(curve.lines.begin(), curve.lines.begin() + curve.line_count);
  std::stable_sort(lines.begin(), lines.end(),
                   [&](CollectiveLine const& a, CollectiveLine const& b) { return a.time(bytes) < b.time(bytes); });
  CollectiveLine const& best = lines.front();
  double const factor = correction_at(curve, bytes);
  std::string text = fmt::format("{} of {:.4g} bytes on {} ranks of {} node{}: {:.4g} us, {}\n", to_string(op), bytes,
                                 shape.members, shape.nodes, shape.nodes == 1 ? "" : "s",
                                 factor * best.time(bytes) * 1e6, choice_text(best));
  text += fmt::format("  formula      {:.4g} us + bytes / {:.4g} GB/s + ramp {:.4g} us = {:.4g} us\n",
                      best.latency * 1e6, 1 / best.per_byte / 1e9, best.per_byte * std::sqrt(bytes * best.ramp) * 1e6,
                      best.time(bytes) * 1e6);
  text += fmt::format("  parameters   {}\n", parameters_text(op, shape, model, bytes));
  if (lines.size() > 1)
    text += fmt::format("  next choice  {}, {:.4g} us\n", choice_text(lines[1]), lines[1].time(bytes) * 1e6);
  text += fmt::format("  measured     nearest curve: {}; correction {:+.1f} %, band of left-out curves {:.1f} %\n",
                      nearest_text(op, shape, model), 100 * (factor - 1), 100 * model.band);
  return text;
}

} // namespace foreplan

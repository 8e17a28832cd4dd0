#include "timing/collectives/curve.hpp"

#include "timing/collectives/algorithms.hpp"

#include <algorithm>

namespace foreplan {

std::string_view to_string(CollectiveAlgorithm algorithm) {
  switch (algorithm) {
    case CollectiveAlgorithm::ring: return "ring";
    case CollectiveAlgorithm::tree: return "tree";
    case CollectiveAlgorithm::nvls: return "NVLS";
    case CollectiveAlgorithm::nvls_tree: return "NVLSTree";
    case CollectiveAlgorithm::pat: return "PAT";
    case CollectiveAlgorithm::direct: return "direct";
  }
  return "?";
}

std::string_view to_string(Protocol protocol) {
  switch (protocol) {
    case Protocol::ll: return "LL";
    case Protocol::ll128: return "LL128";
    case Protocol::simple: return "Simple";
  }
  return "?";
}

CollectiveCurve collective_curve(CollectiveOp op, GroupShape const& shape, CollectiveLibrary library, ScaleUp topology,
                                 CollectiveValues const& values) {
  CollectiveCurve curve;
  curve.factor.fill(1);
  CollectiveSetting const setting{op, shape, library, topology, values};
  if (op == CollectiveOp::all_to_all || op == CollectiveOp::send_receive) {
    add_direct(setting, curve);
    return curve;
  }
  add_ring(setting, curve);
  if (op == CollectiveOp::all_reduce) {
    add_tree(setting, curve);
    add_multicast(setting, curve);
  } else if (op != CollectiveOp::broadcast) {
    add_pat(setting, curve);
  }
  return curve;
}

namespace {

// How alike two operations are in their residuals: gather and scatter run the same rings, an all-reduce both.
double likeness(CollectiveOp a, CollectiveOp b) {
  if (a == b)
    return 1;
  auto const gathers = [](CollectiveOp op) {
    return op == CollectiveOp::all_gather || op == CollectiveOp::reduce_scatter;
  };
  if (gathers(a) && gathers(b))
    return 0.7;
  auto const rings = [&](CollectiveOp op) {
    return gathers(op) || op == CollectiveOp::all_reduce || op == CollectiveOp::broadcast;
  };
  return rings(a) == rings(b) ? 0.05 : 0.02;
}

double bell(double distance, double width) { return std::exp(-0.5 * (distance / width) * (distance / width)); }

double likeness(CollectiveResidual const& curve, CollectiveOp op, GroupShape const& shape) {
  constexpr double member_width = 0.5; // octaves of the group's size
  constexpr double node_width = 0.7;
  if ((curve.nodes == 1) != (shape.nodes == 1))
    return 0; // another fabric decides
  return curve.weight * likeness(op, curve.op) *
         bell(std::log2(static_cast<double>(shape.members) / curve.members), member_width) *
         bell(std::log2(static_cast<double>(shape.nodes) / curve.nodes), node_width);
}

} // namespace

void set_correction(CollectiveCurve& curve, CollectiveOp op, GroupShape const& shape,
                    std::vector<CollectiveResidual> const& residuals, int first, int last) {
  // Weight of a measurement 0, 1, 2, 3 octaves away: a bell of 0.6 octaves.
  constexpr std::array<double, 4> near{1, 0.2494, 0.003866, 3.7e-6};
  constexpr double doubt = 0.2; // weight of "no correction"
  std::array<double, octave_count> weight{}, sum{};
  for (CollectiveResidual const& measured : residuals) {
    double const alike = likeness(measured, op, shape);
    if (alike < 1e-4)
      continue;
    for (CollectiveResidual::Octave const& octave : measured.octaves) {
      int const at = octave.log2_bytes - first_octave;
      for (int i = std::max(first, at - 3); i <= std::min(last, at + 3); ++i) {
        double const w = alike * near[static_cast<std::size_t>(std::abs(i - at))];
        weight[static_cast<std::size_t>(i)] += w;
        sum[static_cast<std::size_t>(i)] += w * octave.log_ratio;
      }
    }
  }
  for (int i = first; i <= last; ++i) {
    auto const at = static_cast<std::size_t>(i);
    curve.factor[at] = std::exp(std::clamp(sum[at] / (weight[at] + doubt), -most_correction, most_correction));
  }
}

CollectiveCurve collective_curve(CollectiveOp op, GroupShape const& shape, CollectiveModel const& model) {
  CollectiveCurve curve = collective_curve(op, shape, model.library, model.topology, model.values);
  set_correction(curve, op, shape, model.residuals, 0, octave_count - 1);
  return curve;
}

CollectiveTime collective_time(CollectiveOp op, GroupShape const& shape, CollectiveModel const& model, double bytes) {
  CollectiveCurve curve = collective_curve(op, shape, model.library, model.topology, model.values);
  int const below = std::clamp(static_cast<int>(std::log2(std::max(bytes, 1.0))) - first_octave, 0, octave_count - 1);
  set_correction(curve, op, shape, model.residuals, below, std::min(below + 1, octave_count - 1));
  return collective_time(curve, bytes);
}

} // namespace foreplan

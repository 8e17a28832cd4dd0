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

CollectiveCurve collective_curve(CollectiveOp op, GroupShape const& shape, CollectiveLibrary library,
                                 ScaleUpTopology topology, CollectiveValues const& values) {
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

CollectiveCurve collective_curve(CollectiveOp op, GroupShape const& shape, CollectiveModel const& model) {
  CollectiveCurve curve = collective_curve(op, shape, model.library, model.topology, model.values);
  if (!model.residuals.empty())
    for (int i = 0; i < octave_count; ++i)
      curve.factor[static_cast<std::size_t>(i)] =
          std::exp(log_correction(model.residuals, op, shape.members, shape.nodes, first_octave + i));
  return curve;
}

namespace {

// How alike two operations are in their residuals: gather and scatter run the same rings, an all-reduce both.
double likeness(CollectiveOp a, CollectiveOp b) {
  if (a == b)
    return 1;
  auto const gathers = [](CollectiveOp op) { return op == CollectiveOp::all_gather || op == CollectiveOp::reduce_scatter; };
  if (gathers(a) && gathers(b))
    return 0.7;
  auto const rings = [&](CollectiveOp op) { return gathers(op) || op == CollectiveOp::all_reduce || op == CollectiveOp::broadcast; };
  return rings(a) == rings(b) ? 0.15 : 0.03;
}

double bell(double distance, double width) { return std::exp(-0.5 * (distance / width) * (distance / width)); }

} // namespace

double log_correction(std::vector<CollectiveResidual> const& residuals, CollectiveOp op, int members, int nodes,
                      int log2_bytes) {
  constexpr double member_width = 0.5; // octaves of the group's size
  constexpr double node_width = 0.7;
  constexpr double size_width = 0.6;
  constexpr double doubt = 0.1; // weight of "no correction"
  double weights = doubt;
  double sum = 0;
  for (CollectiveResidual const& curve : residuals) {
    if ((curve.nodes == 1) != (nodes == 1))
      continue; // another fabric decides
    double const alike = curve.weight * likeness(op, curve.op) *
                         bell(std::log2(static_cast<double>(members) / curve.members), member_width) *
                         bell(std::log2(static_cast<double>(nodes) / curve.nodes), node_width);
    if (alike < 1e-4)
      continue;
    for (CollectiveResidual::Octave const& octave : curve.octaves) {
      double const weight = alike * bell(log2_bytes - octave.log2_bytes, size_width);
      weights += weight;
      sum += weight * octave.log_ratio;
    }
  }
  return std::clamp(sum / weights, -most_correction, most_correction);
}

} // namespace foreplan

// PAT: gather and scatter over nodes with one member each, in a logarithmic number of steps.
#include "timing/collectives/algorithms.hpp"

namespace foreplan {

void add_pat(CollectiveSetting const& setting, CollectiveCurve& curve) {
  GroupShape const& shape = setting.shape;
  if (shape.nodes < 2 || shape.on_a_node != 1 || shape.members != shape.nodes ||
      setting.library != CollectiveLibrary::nccl)
    return;
  double const rate = 0.75 * ring_rate(setting);
  double const others = static_cast<double>(shape.members - 1) / shape.members;
  curve.add({.latency = setting.values[collective::base] * 8 / 6.6 +
                        std::log2(shape.nodes) * setting.values[collective::network_hop_simple] / 3.5 +
                        2.8 / 14 * setting.values[collective::network_hop_simple] * shape.members,
             .per_byte = others / rate + own_share_per_byte(setting),
             .ramp = setting.values[collective::ramp],
             .algorithm = CollectiveAlgorithm::pat,
             .protocol = Protocol::simple});
}

} // namespace foreplan

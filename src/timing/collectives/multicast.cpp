// NVLS: the switch adds and copies, so that a member sends and receives the buffer once. NVLSTree: a tree over the nodes
// between the two halves.
#include "timing/collectives/algorithms.hpp"

#include <algorithm>

namespace foreplan {

void add_multicast(CollectiveSetting const& setting, CollectiveCurve& curve) {
  GroupShape const& shape = setting.shape;
  CollectiveValues const& values = setting.values;
  if (values[collective::multicast] <= 0 || setting.topology != ScaleUp::switched || shape.on_a_node < 2)
    return;
  double const nvls = values[collective::multicast] * shape.scale_up;
  // NCCL's table: 25 us for NVLS against 3.4 us of a Simple ring step; 20.9 against 14 us for a step between nodes.
  double const inside = values[collective::hop_simple] * 25 / 3.4;
  double const ramp = values[collective::ramp];
  if (shape.nodes == 1) {
    curve.add({.latency = inside,
               .per_byte = 1 / nvls,
               .ramp = ramp,
               .algorithm = CollectiveAlgorithm::nvls,
               .protocol = Protocol::simple});
    return;
  }
  // Over two nodes the buffer leaves each node once: half of it as the one tree's child, half as the other's. From three on
  // inner nodes send it twice.
  double const times_out = shape.nodes == 2 ? 1 : 2;
  double const network = values[collective::network] * shape.network / times_out;
  double const between = values[collective::network_hop_simple] * 20.9 / 14;
  curve.add({.latency = inside + 2 * std::log2(shape.nodes) * between,
             .per_byte = 1 / std::min(values[collective::multicast_tree] * nvls, network),
             .ramp = ramp,
             .algorithm = CollectiveAlgorithm::nvls_tree,
             .protocol = Protocol::simple});
}

} // namespace foreplan

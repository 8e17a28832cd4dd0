// Double binary tree over the nodes, a chain inside each: all-reduce only.
#include "timing/collectives/algorithms.hpp"

#include <algorithm>

namespace foreplan {

namespace {

// 5, 8.5, 14 us against the ring's 2.7, 4, 14 us.
double tree_network_hop(CollectiveSetting const& setting, Protocol protocol) {
  double const simple = network_hop(setting, Protocol::simple);
  double const ll = std::min(simple, network_hop(setting, Protocol::ll) * 5 / 2.7);
  switch (protocol) {
    case Protocol::ll: return ll;
    case Protocol::ll128: return ll + (simple - ll) * (8.5 - 5) / (14 - 5);
    case Protocol::simple: return simple;
  }
  return simple;
}

} // namespace

void add_tree(CollectiveSetting const& setting, CollectiveCurve& curve) {
  GroupShape const& shape = setting.shape;
  if (shape.nodes == 1) // a chain there and back is a ring with less bandwidth
    return;
  double const depth = std::log2(shape.nodes);
  for_each_protocol(setting, [&](Protocol protocol) {
    double const simple = 0.92 * ring_rate(setting);
    double const rate = protocol == Protocol::simple ? simple
                        : protocol == Protocol::ll128
                            ? simple * 120 / 128
                            : std::min(simple / 3.8, protocol_rate(setting, Protocol::ll, simple));
    // NCCL's tree steps over its ring steps: 0.6/0.6, 1.25/1.9, 4/3.4 us inside a node.
    double const inside = node_hop(setting, protocol) * (protocol == Protocol::ll      ? 1
                                                         : protocol == Protocol::ll128 ? 1.25 / 1.9
                                                                                       : 4 / 3.4);
    double const between = tree_network_hop(setting, protocol);
    curve.add({.latency = base_latency(setting, protocol) + 2 * ((shape.on_a_node - 1) * inside + depth * between),
               .per_byte = 2 / rate, // up and down
               .ramp = setting.values[collective::ramp],
               .algorithm = CollectiveAlgorithm::tree,
               .protocol = protocol});
  });
}

} // namespace foreplan

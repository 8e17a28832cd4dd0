// All-to-all and send/receive: every member writes to every other at once.
#include "timing/collectives/algorithms.hpp"

#include <algorithm>

namespace foreplan {

namespace {

// Share of a device's links that lead to so many peers of its node: in a mesh a pair has one link.
double links_to_peers(CollectiveSetting const& setting, double peers) {
  switch (setting.topology) {
    case ScaleUp::switched:
    case ScaleUp::pcie: return 1;
    case ScaleUp::full_mesh: return peers / (setting.shape.node_devices - 1);
    case ScaleUp::hybrid_cube_mesh: return std::min(peers, 6.0) / 6;
  }
  return 1;
}

} // namespace

void add_direct(CollectiveSetting const& setting, CollectiveCurve& curve) {
  GroupShape const& shape = setting.shape;
  CollectiveValues const& values = setting.values;
  bool const all_to_all = setting.op == CollectiveOp::all_to_all;
  double const peers = shape.members - 1;
  double const parts = all_to_all ? shape.members : 1; // of the bytes, one for each peer
  double const inside_peers = shape.nodes == 1 ? peers : shape.on_a_node - 1;
  double const outside_peers = shape.nodes == 1 ? 0 : all_to_all ? peers - inside_peers : 1;
  double const inside_rate = values[collective::point_to_point] * shape.scale_up *
                             links_to_peers(setting, inside_peers);
  double const inside = inside_peers > 0 ? inside_peers / parts / inside_rate : 0;
  double const outside_rate = values[collective::network_all_to_all] * shape.network / shape.on_a_node;
  double const outside = outside_peers > 0 ? outside_peers / parts / outside_rate : 0;
  // The channels of one pair cannot fill a port alone.
  double const pair = shape.nodes == 1 && all_to_all ? 1 / (parts * values[collective::own_share] * shape.scale_up) : 0;
  double const depth = all_to_all ? std::log2(shape.members) : 0;
  double const between = shape.nodes > 1 ? values[collective::network_hop] * (1 + std::log2(shape.nodes)) : 0;
  // One step to the peers, and a hop more for each doubling of them. LL for small parts, then Simple.
  double const per_byte = std::max(inside, outside) + pair;
  for (Protocol protocol : {Protocol::ll, Protocol::simple})
    curve.add({.latency = base_latency(setting, protocol) + node_hop(setting, protocol) +
                          depth * values[collective::hop] + between,
               .per_byte = 1 / protocol_rate(setting, protocol, 1 / per_byte),
               .ramp = values[collective::ramp],
               .algorithm = CollectiveAlgorithm::direct,
               .protocol = protocol});
}

} // namespace foreplan

// Rates and latencies of LL, LL128 and Simple, as ratios of NCCL's tables.
#include "timing/collectives/algorithms.hpp"

#include <algorithm>

namespace foreplan {

namespace {

// Directed rings through the first n of the eight devices of a DGX-1V, one NVLink each: twice the edge-disjoint
// Hamiltonian cycles of its link matrix (0-1, 0-2: 1 link; 0-3, 0-4: 2; ...), one for a pair. Five devices have none, as
// the fifth has links to the first only: NCCL goes there and back, with less than two.
double cube_mesh_rings(int members) {
  constexpr double rings[] = {0, 0, 1, 2, 4, 1.65, 2, 4, 6};
  return members <= 8 ? rings[members] : 6;
}

// Share of a device's links that rings over the group use inside a node.
double used_links(CollectiveSetting const& setting) {
  GroupShape const& shape = setting.shape;
  switch (setting.topology) {
    case ScaleUp::switched:
    case ScaleUp::pcie: return 1;
    case ScaleUp::hybrid_cube_mesh: return cube_mesh_rings(std::min(shape.members, shape.on_a_node)) / 6;
    case ScaleUp::full_mesh: {
      // n - 1 directed rings fit into a mesh of n devices; over several nodes the rings are paths in each node, of which
      // n fit (n (n - 1) links, n - 1 a path).
      double const links = shape.node_devices - 1;
      return (shape.nodes == 1 ? shape.on_a_node - 1 : shape.on_a_node) / links;
    }
  }
  return 1;
}

} // namespace

double ring_rate(CollectiveSetting const& setting) {
  GroupShape const& shape = setting.shape;
  double const network = setting.values[collective::network] * shape.network;
  if (shape.on_a_node == 1)
    return network;
  double const inside = setting.values[collective::ring] * shape.scale_up * used_links(setting);
  return shape.nodes == 1 ? inside : std::min(inside, network);
}

double protocol_rate(CollectiveSetting const& setting, Protocol protocol, double simple) {
  if (protocol == Protocol::simple)
    return simple;
  if (protocol == Protocol::ll128)
    return 0.92 * simple; // 120 of 128 bytes are data
  // Half of the bytes are flags, and never more than llMax: 87.7 of 300, 141 of 450, 282 of 900 GB/s in a node; 22.5 of
  // 200, 45 of 400 GB/s between two, 19 and 35 between more.
  GroupShape const& shape = setting.shape;
  double const most = shape.nodes == 1   ? 0.3 * shape.scale_up
                      : shape.nodes == 2 ? 0.11 * shape.network
                                         : 0.09 * shape.network;
  return std::min(0.5 * simple, most);
}

double base_latency(CollectiveSetting const& setting, Protocol protocol) {
  double const base = setting.values[collective::base];
  if (setting.library == CollectiveLibrary::rccl) // 12, -, 17 us
    return protocol == Protocol::simple ? base * 17 / 12 : base;
  switch (protocol) { // 6.6, 14, 8.4 us
    case Protocol::ll: return base;
    case Protocol::ll128: return base * 14 / 6.6;
    case Protocol::simple: return base * 8.4 / 6.6;
  }
  return base;
}

// Between LL's and Simple's as far as in NCCL's table (0.6, 1.9, 3.4 us and 2.7, 4, 14 us).
double node_hop(CollectiveSetting const& setting, Protocol protocol) {
  double const ll = setting.values[collective::hop], simple = setting.values[collective::hop_simple];
  switch (protocol) {
    case Protocol::ll: return ll;
    case Protocol::ll128: return ll + (simple - ll) * (1.9 - 0.6) / (3.4 - 0.6);
    case Protocol::simple: return simple;
  }
  return simple;
}

double network_hop(CollectiveSetting const& setting, Protocol protocol) {
  double const ll = setting.values[collective::network_hop], simple = setting.values[collective::network_hop_simple];
  switch (protocol) {
    case Protocol::ll: return ll;
    case Protocol::ll128: return ll + (simple - ll) * (4.0 - 2.7) / (14 - 2.7);
    case Protocol::simple: return simple;
  }
  return simple;
}

bool has_ll128(CollectiveSetting const& setting) {
  return setting.library == CollectiveLibrary::nccl && setting.topology != ScaleUp::full_mesh;
}

double own_share_per_byte(CollectiveSetting const& setting) {
  return 1 / (setting.shape.members * setting.values[collective::own_share] * setting.shape.scale_up);
}

} // namespace foreplan

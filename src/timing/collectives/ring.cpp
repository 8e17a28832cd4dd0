#include "timing/collectives/ring.hpp"

#include "timing/collectives/algorithms.hpp"

#include <algorithm>

namespace foreplan {

GroupLayout layout_of(Cluster const& cluster, std::span<Rank const> members) {
  int const all = static_cast<int>(members.size());
  GroupLayout layout{.members = all, .nodes = 0, .fewest_on_a_node = all, .fewest_nics = all};
  for (std::size_t i = 0; i < members.size();) { // members ascend, so those of a node stand together
    std::size_t end = i;
    while (end < members.size() && node_of(cluster, members[end]) == node_of(cluster, members[i]))
      ++end;
    ++layout.nodes;
    layout.fewest_on_a_node = std::min(layout.fewest_on_a_node, static_cast<int>(end - i));
    int nics = 1; // of ascending devices, NICs ascend too
    for (std::size_t k = i + 1; k < end; ++k)
      nics += nic_of(cluster, members[k]) != nic_of(cluster, members[k - 1]) ? 1 : 0;
    layout.fewest_nics = std::min(layout.fewest_nics, nics);
    i = end;
  }
  return layout;
}

std::vector<LinkShare> ring_links(Cluster const& cluster, GroupLayout const& layout, Rank member, int position,
                                  int on_node) {
  using Kind = Link::Kind;
  std::int32_t const rings = layout.nodes == 1 ? 1 : layout.fewest_on_a_node;
  // Every ring passes through every member; in one of them (for the first p members of a node) it comes from and goes to
  // another node by its own NIC, in the others through the node's fabric.
  bool const crosses = layout.nodes > 1 && position < rings;
  std::vector<LinkShare> links;
  std::int32_t const inside = rings - (crosses ? 1 : 0);
  if (inside > 0 && on_node > 1) {
    links.push_back({{Kind::scale_up_out, member.value()}, inside});
    links.push_back({{Kind::scale_up_in, member.value()}, inside});
  }
  if (crosses) {
    links.push_back({{Kind::nic_out, nic_of(cluster, member)}, 1});
    links.push_back({{Kind::nic_in, nic_of(cluster, member)}, 1});
  }
  return links;
}

std::vector<LinkShare> transfer_links(Cluster const& cluster, Rank from, Rank to) {
  std::vector<LinkShare> links;
  for (Link const link : path(cluster, from, to))
    links.push_back({link, 1});
  return links;
}

namespace {

Demand communication_demand(Cluster const& cluster, Bytes wire, Bytes unit, Seconds latency, BytesPerSecond rate) {
  HardwareProfile const& profile = cluster.profile;
  Demand demand;
  demand.issue = demand.lead = profile.issue;
  demand.device = TransferDemand{{{latency, {{unit, rate, {}}}}}};
  demand.sm_share = static_cast<double>(profile.collective_multiprocessors) / profile.chip.multiprocessors;
  // Every byte sent is read here, and as many arrive and are written.
  demand.memory_bandwidth_share = 2 * (wire / (latency + unit / rate)) / profile.chip.memory_bandwidth;
  return demand;
}

} // namespace

Demand ring_demand(Op const& op, Operands const& operands, Cluster const& cluster, GroupLayout const& layout,
                   BytesPerSecond unit_rate) {
  HardwareProfile const& profile = cluster.profile;
  bool const direct = op.kind == OpKind::all_to_all || op.kind == OpKind::ring_shift; // one step, each by its own NIC
  int const rounds = op.kind == OpKind::all_reduce ? 2 : 1;
  int const steps = direct ? 1 : rounds * (layout.members - 1);
  int const crossings = direct ? std::min(1, layout.nodes - 1) : rounds * (layout.nodes - 1);
  Seconds const latency = profile.collective_base + (steps - crossings) * profile.node.scale_up_latency +
                          crossings * profile.node.network_latency;
  Bytes const wire = wire_bytes(op, operands, layout.members);
  return communication_demand(cluster, wire, wire / (layout.nodes == 1 || direct ? 1 : layout.fewest_on_a_node),
                              latency, unit_rate);
}

Demand transfer_demand(Op const& op, Operands const& operands, Cluster const& cluster, bool same_node,
                       BytesPerSecond rate) {
  HardwareProfile const& profile = cluster.profile;
  Seconds const hop = same_node ? profile.node.scale_up_latency : profile.node.network_latency;
  Bytes const bytes = wire_bytes(op, operands, 2);
  return communication_demand(cluster, bytes, bytes, profile.collective_base + hop, rate);
}

void add_ring(CollectiveSetting const& setting, CollectiveCurve& curve) {
  GroupShape const& shape = setting.shape;
  CollectiveOp const op = setting.op;
  double const n = shape.members;
  bool const one_to_all = op == CollectiveOp::broadcast;
  double const rounds = op == CollectiveOp::all_reduce ? 2 : 1;
  double const steps = rounds * (n - 1);
  double const crossings = rounds * (shape.nodes - 1);
  double const sent = one_to_all ? 1 : rounds * (n - 1) / n; // of the buffer, by each member
  // Between nodes a step inside one costs at least what the network's proxy does: 1 us, three times that for Simple.
  constexpr double proxy = 1e-6;
  for_each_protocol(setting, [&](Protocol protocol) {
    double const least = shape.nodes > 1 ? (protocol == Protocol::simple ? 3 * proxy : proxy) : 0;
    double const inside = std::max(node_hop(setting, protocol), least);
    double const rate = protocol_rate(setting, protocol, ring_rate(setting));
    curve.add({.latency = base_latency(setting, protocol) + (steps - crossings) * inside +
                          crossings * network_hop(setting, protocol),
               .per_byte = sent / rate + (one_to_all ? 0 : own_share_per_byte(setting)),
               .ramp = setting.values[collective::ramp],
               .algorithm = CollectiveAlgorithm::ring,
               .protocol = protocol});
  });
}

} // namespace foreplan

// Rings, and transfers between two ranks, on the links that they use.
#pragma once

#include "cluster/links.hpp"
#include "program/amounts.hpp"
#include "timing/demand.hpp"

#include <span>
#include <vector>

namespace foreplan {

// Where the members of a communicator sit.
struct GroupLayout {
  int members = 1;
  int nodes = 1;
  int fewest_on_a_node = 1; // p: as many rings go through every NIC-to-NIC border, each leaving nodes by another NIC
  int fewest_nics = 1;      // NICs that its members of a node use
};
GroupLayout layout_of(Cluster const& cluster, std::span<Rank const> members);

// A member's part in the rings. The unit is what one ring carries: 1/p of the bytes each member sends.
struct LinkShare {
  Link link;
  std::int32_t multiplicity = 1;
};
// Links of the `position`-th of `on_node` members of its node (0-based), in a ring over the whole group.
std::vector<LinkShare> ring_links(Cluster const& cluster, GroupLayout const& layout, Rank member, int position,
                                  int on_node);

// The links of a transfer from one device to another.
std::vector<LinkShare> transfer_links(Cluster const& cluster, Rank from, Rank to);

// What the op asks, with the rate that the group's links allow when alone; the flow's links are the caller's to fill in.
// Latency (NCCL's model, notes: hardware.md B5): base + (steps - crossings) * scale-up hop + crossings * network hop, with
// 2 (n - 1) steps and 2 (nodes - 1) crossings for an all-reduce, half of both for gather and scatter.
Demand ring_demand(Op const& op, Operands const& operands, Cluster const& cluster, GroupLayout const& layout,
                   BytesPerSecond unit_rate);
Demand transfer_demand(Op const& op, Operands const& operands, Cluster const& cluster, bool same_node,
                       BytesPerSecond rate);

} // namespace foreplan

// The demand of a collective or a transfer: what was measured of this kind inside a node (measured.hpp); else with the profile's block "collectives" its model (curve.hpp), without it the
// ring form (ring.hpp). Alone on empty links a demand takes exactly the modelled time.
#pragma once

#include "timing/collectives/curve.hpp"
#include "timing/collectives/ring.hpp"

namespace foreplan {

GroupShape shape_of(Cluster const& cluster, GroupLayout const& layout);
GroupLayout layout_of_pair(bool same_node); // of a transfer's two ends

// A collective or transfer, and its bytes as nccl-tests counts them (CollectiveLine).
struct SizedCollective {
  CollectiveOp op = CollectiveOp::all_reduce;
  double bytes = 0;
};
SizedCollective sized(Op const& op, Operands const& operands, int members);

// `unit_rate`: what the group's links (ring_links, transfer_links) allow when alone; the flow's links are the caller's to
// fill in. Flow bytes are what the chosen algorithm sends: a ring's part; with NVLS the buffer once; with a tree over
// two nodes the buffer once out of each.
Demand collective_demand(Op const& op, Operands const& operands, Cluster const& cluster, GroupLayout const& layout,
                         BytesPerSecond unit_rate);
Demand point_to_point_demand(Op const& op, Operands const& operands, Cluster const& cluster, bool same_node,
                             BytesPerSecond unit_rate);

} // namespace foreplan

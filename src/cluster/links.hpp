// The links of a cluster, one by one. A device reaches the others of its node through its port into the node's switches,
// or, in a full mesh, by a link of its own to each; a NIC has a port into the fabric between nodes. Where leaf switches are
// oversubscribed, what leaves a leaf shares its links to the spines. Beside them stands the host: a device's own link,
// the way that it shares with its neighbours, the memory of its socket, the drives of its system.
#pragma once

#include "cluster/cluster.hpp"

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace foreplan {

struct Link {
  enum class Kind : std::uint8_t {
    scale_up_out,
    scale_up_in,
    nic_out,
    nic_in,
    mesh,
    leaf_out,
    leaf_in,
    host_out, // of a device to its host
    host_in,
    host_shared_out, // of the devices that share it; where it is half duplex, both directions
    host_shared_in,
    host_memory,
    drive_read,
    drive_write
  };
  Kind kind = Kind::scale_up_out;
  // Of the device; of the NIC (node * NICs of a node + NIC in the node); of the ordered pair in a mesh (sender * devices of
  // a node + receiver in the node); of the leaf switch; of the devices that share a way to the host, of the socket, of the
  // system, each counted over the whole cluster.
  std::int32_t index = 0;
  friend auto operator<=>(Link const&, Link const&) = default;
};

// Of the NICs' rate, for a group that spans so many nodes (Fabric::shares).
double network_share(Cluster const& cluster, int nodes);

int node_of(Cluster const& cluster, Rank device);
int nic_of(Cluster const& cluster, Rank device);
int leaf_of(Cluster const& cluster, int nic); // -1: the fabric is not described
// Whether what a transfer shares depends on the leaf switches that its nodes hang from: nodes are then not all equivalent.
bool leaves_contend(Cluster const& cluster);

// The links that bytes from one device to another pass, in order: inside the node, or by the devices' own NICs.
std::vector<Link> path(Cluster const& cluster, Rank from, Rank to);

// What flows can get through it: the line rate times the class's efficiency, times the device's exception.
BytesPerSecond capacity(Cluster const& cluster, Link link);
double compute_speed(Cluster const& cluster, Rank device);

std::string_view to_string(Link::Kind kind);
// "NIC out 3 of node 0"
std::string describe(Cluster const& cluster, Link link);

} // namespace foreplan

// The links of a cluster, one by one. First form: every device has a port into the node's switched fabric, every NIC a
// port into a fabric that is non-blocking between NICs.
#pragma once

#include "cluster/cluster.hpp"

#include <compare>
#include <cstdint>
#include <string>

namespace foreplan {

struct Link {
  enum class Kind : std::uint8_t { scale_up_out, scale_up_in, nic_out, nic_in };
  Kind kind = Kind::scale_up_out;
  std::int32_t index = 0; // of the device, or of the NIC (node * NICs of a node + NIC in the node)
  friend auto operator<=>(Link const&, Link const&) = default;
};

int node_of(Cluster const& cluster, Rank device);
int nic_of(Cluster const& cluster, Rank device);

// What flows can get through it: the line rate times the class's efficiency, times the device's exception.
BytesPerSecond capacity(Cluster const& cluster, Link link);
double compute_speed(Cluster const& cluster, Rank device);

std::string_view to_string(Link::Kind kind);

} // namespace foreplan

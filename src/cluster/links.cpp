#include "cluster/links.hpp"

#include <algorithm>

namespace foreplan {

int node_of(Cluster const& cluster, Rank device) { return device.value() / cluster.profile.node.devices; }

int nic_of(Cluster const& cluster, Rank device) {
  Node const& node = cluster.profile.node;
  int const in_node = device.value() % node.devices;
  return node_of(cluster, device) * node.nics + in_node * node.nics / node.devices;
}

BytesPerSecond capacity(Cluster const& cluster, Link link) {
  HardwareProfile const& profile = cluster.profile;
  bool const is_nic = link.kind == Link::Kind::nic_out || link.kind == Link::Kind::nic_in;
  double speed = 1;
  for (Exception const& exception : cluster.exceptions) {
    if (is_nic && nic_of(cluster, exception.device) == link.index)
      speed = std::min(speed, exception.nic_speed);
    if (!is_nic && exception.device.value() == link.index)
      speed = std::min(speed, exception.scale_up_speed);
  }
  return is_nic ? profile.node.nic * profile.efficiency.network * speed
                : profile.node.scale_up * profile.efficiency.scale_up * speed;
}

double compute_speed(Cluster const& cluster, Rank device) {
  for (Exception const& exception : cluster.exceptions)
    if (exception.device == device)
      return exception.compute_speed;
  return 1;
}

std::string_view to_string(Link::Kind kind) {
  switch (kind) {
    case Link::Kind::scale_up_out: return "scale-up out";
    case Link::Kind::scale_up_in: return "scale-up in";
    case Link::Kind::nic_out: return "NIC out";
    case Link::Kind::nic_in: return "NIC in";
  }
  return "?";
}

} // namespace foreplan

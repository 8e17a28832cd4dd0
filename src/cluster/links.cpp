#include "cluster/links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace foreplan {

double network_share(Cluster const& cluster, int nodes) {
  if (!cluster.profile.fabric || cluster.profile.fabric->shares.empty())
    return 1;
  std::vector<Fabric::SpanShare> const& shares = cluster.profile.fabric->shares;
  auto const above = std::find_if(shares.begin(), shares.end(),
                                  [&](auto const& known) { return known.nodes >= nodes; });
  if (above == shares.end())
    return shares.back().share;
  Fabric::SpanShare const below = above == shares.begin() ? Fabric::SpanShare{1, 1} : *std::prev(above);
  if (nodes <= below.nodes)
    return below.share;
  double const along = std::log2(static_cast<double>(nodes) / below.nodes) /
                       std::log2(static_cast<double>(above->nodes) / below.nodes);
  return below.share * std::pow(above->share / below.share, along);
}

int node_of(Cluster const& cluster, Rank device) { return device.value() / cluster.profile.node.devices; }

int nic_of(Cluster const& cluster, Rank device) {
  Node const& node = cluster.profile.node;
  int const in_node = device.value() % node.devices;
  return node_of(cluster, device) * node.nics + in_node * node.nics / node.devices;
}

int leaf_of(Cluster const& cluster, int nic) {
  if (!cluster.profile.fabric)
    return -1;
  Fabric const& fabric = *cluster.profile.fabric;
  int const nics = cluster.profile.node.nics;
  int const unit = fabric.nodes_per_leaf > 0 ? nic / nics / fabric.nodes_per_leaf : 0;
  return fabric.rails ? unit * nics + nic % nics : unit;
}

bool leaves_contend(Cluster const& cluster) {
  return cluster.profile.fabric && cluster.profile.fabric->oversubscription > 1;
}

std::vector<Link> path(Cluster const& cluster, Rank from, Rank to) {
  using Kind = Link::Kind;
  Node const& node = cluster.profile.node;
  if (node_of(cluster, from) == node_of(cluster, to)) {
    if (node.topology == ScaleUp::full_mesh)
      return {{Kind::mesh, from.value() * node.devices + to.value() % node.devices}};
    return {{Kind::scale_up_out, from.value()}, {Kind::scale_up_in, to.value()}};
  }
  int const out = nic_of(cluster, from);
  int const in = nic_of(cluster, to);
  bool const contended = leaves_contend(cluster) && leaf_of(cluster, out) != leaf_of(cluster, in);
  if (!contended)
    return {{Kind::nic_out, out}, {Kind::nic_in, in}};
  return {{Kind::nic_out, out},
          {Kind::leaf_out, leaf_of(cluster, out)},
          {Kind::leaf_in, leaf_of(cluster, in)},
          {Kind::nic_in, in}};
}

namespace {

// The slowest exception among the devices at the link.
double exception_speed(Cluster const& cluster, Link link) {
  using Kind = Link::Kind;
  int const devices = cluster.profile.node.devices;
  double speed = 1;
  for (Exception const& exception : cluster.exceptions) {
    int const device = exception.device.value();
    switch (link.kind) {
      case Kind::nic_out:
      case Kind::nic_in:
        if (nic_of(cluster, exception.device) == link.index)
          speed = std::min(speed, exception.nic_speed);
        break;
      case Kind::scale_up_out:
      case Kind::scale_up_in:
        if (device == link.index)
          speed = std::min(speed, exception.scale_up_speed);
        break;
      case Kind::mesh: {
        int const sender = link.index / devices;
        int const receiver = sender / devices * devices + link.index % devices;
        if (device == sender || device == receiver)
          speed = std::min(speed, exception.scale_up_speed);
        break;
      }
      default: break;
    }
  }
  return speed;
}

BytesPerSecond host_rate(Host const& host, Link::Kind kind) {
  using Kind = Link::Kind;
  switch (kind) {
    case Kind::host_shared_out:
    case Kind::host_shared_in: return host.shared_link.value() > 0 ? host.shared_link : host.link;
    case Kind::host_memory: return host.memory_bandwidth / host.sockets;
    case Kind::drive_read: return host.drive_read * (static_cast<double>(host.drives) / host.systems);
    case Kind::drive_write: return host.drive_write * (static_cast<double>(host.drives) / host.systems);
    default: return host.link;
  }
}

BytesPerSecond line_rate(Cluster const& cluster, Link::Kind kind) {
  using Kind = Link::Kind;
  Node const& node = cluster.profile.node;
  switch (kind) {
    case Kind::scale_up_out:
    case Kind::scale_up_in: return node.scale_up;
    case Kind::mesh: return node.scale_up / std::max(1, node.devices - 1);
    case Kind::nic_out:
    case Kind::nic_in: return node.nic;
    case Kind::leaf_out:
    case Kind::leaf_in: {
      Fabric const& fabric = *cluster.profile.fabric;
      int const below = fabric.nodes_per_leaf * (fabric.rails ? 1 : node.nics);
      return node.nic * below / fabric.oversubscription;
    }
    default: return host_rate(*node.host, kind);
  }
}

bool is_of_host(Link::Kind kind) { return kind >= Link::Kind::host_out; }

bool is_inside_node(Link::Kind kind) {
  return kind == Link::Kind::scale_up_out || kind == Link::Kind::scale_up_in || kind == Link::Kind::mesh;
}

// What flows reach: the fastest of the measured collectives, where there are some.
double share_of_line_rate(HardwareProfile const& profile, Link::Kind kind) {
  if (is_of_host(kind))
    return 1; // the profile gives what copies reach
  bool const inside = is_inside_node(kind);
  double const given = inside ? profile.efficiency.scale_up : profile.efficiency.network;
  if (!profile.collectives)
    return given;
  CollectiveValues const& values = profile.collectives->values;
  return inside ? std::max({given, values[collective::ring], values[collective::point_to_point],
                            values[collective::multicast]})
                : std::max({given, values[collective::network], values[collective::network_all_to_all]});
}

} // namespace

BytesPerSecond capacity(Cluster const& cluster, Link link) {
  return line_rate(cluster, link.kind) * share_of_line_rate(cluster.profile, link.kind) *
         exception_speed(cluster, link);
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
    case Link::Kind::mesh: return "mesh";
    case Link::Kind::leaf_out: return "leaf out";
    case Link::Kind::leaf_in: return "leaf in";
    case Link::Kind::host_out: return "host out";
    case Link::Kind::host_in: return "host in";
    case Link::Kind::host_shared_out: return "shared host link out";
    case Link::Kind::host_shared_in: return "shared host link in";
    case Link::Kind::host_memory: return "host memory";
    case Link::Kind::drive_read: return "drives read";
    case Link::Kind::drive_write: return "drives write";
  }
  return "?";
}

std::string describe(Cluster const& cluster, Link link) {
  using Kind = Link::Kind;
  Node const& node = cluster.profile.node;
  switch (link.kind) {
    case Kind::scale_up_out:
    case Kind::scale_up_in:
    case Kind::host_out:
    case Kind::host_in: return fmt::format("{} of device {}", to_string(link.kind), link.index);
    case Kind::mesh: {
      int const sender = link.index / node.devices;
      return fmt::format("mesh link of device {} to {}", sender,
                         sender / node.devices * node.devices + link.index % node.devices);
    }
    case Kind::nic_out:
    case Kind::nic_in:
      return fmt::format("{} {} of node {}", to_string(link.kind), link.index % node.nics, link.index / node.nics);
    case Kind::leaf_out: return fmt::format("leaf switch {} to the spines", link.index);
    case Kind::leaf_in: return fmt::format("the spines to leaf switch {}", link.index);
    case Kind::host_shared_out:
    case Kind::host_shared_in:
    case Kind::host_memory:
    case Kind::drive_read:
    case Kind::drive_write: return fmt::format("{} {}", to_string(link.kind), link.index);
  }
  return "?";
}

} // namespace foreplan

#include "timing/copies.hpp"

#include "io/input_error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace foreplan {

namespace {

using Kind = Link::Kind;

Host const& host_of(Cluster const& cluster) {
  if (!cluster.profile.node.host)
    throw InputError(fmt::format("{}: node.host: is not given; copies to the host need it", cluster.profile.name));
  return *cluster.profile.node.host;
}

Host const& host_with_drives(Cluster const& cluster) {
  Host const& host = host_of(cluster);
  if (host.drives == 0)
    throw InputError(fmt::format("{}: node.host.drives: is not given; copies to drives need it", cluster.profile.name));
  return host;
}

// Number of the part of a node that the device stands in, of `parts` in each node, over the whole cluster.
std::int32_t part_of(Cluster const& cluster, Rank device, int parts) {
  int const devices = cluster.profile.node.devices;
  return node_of(cluster, device) * parts + device.value() % devices * parts / devices;
}

Link drive_link(Cluster const& cluster, Rank device, Kind kind) {
  return {kind, part_of(cluster, device, host_with_drives(cluster).systems)};
}

std::vector<Link> device_links(Cluster const& cluster, Rank device, bool out) {
  Host const& host = host_of(cluster);
  std::vector<Link> links{{out ? Kind::host_out : Kind::host_in, device.value()}};
  if (host.devices_per_link > 1 || host.half_duplex) {
    int const groups = (cluster.profile.node.devices + host.devices_per_link - 1) / host.devices_per_link;
    int const in_node = device.value() % cluster.profile.node.devices;
    links.push_back({out || host.half_duplex ? Kind::host_shared_out : Kind::host_shared_in,
                     node_of(cluster, device) * groups + in_node / host.devices_per_link});
  }
  links.push_back(host_memory_link(cluster, device));
  return links;
}

BytesPerSecond drive_rate(Cluster const& cluster, Kind kind, FileRequests const& requests) {
  Host const& host = host_with_drives(cluster);
  BytesPerSecond const drive = kind == Kind::drive_read ? host.drive_read : host.drive_write;
  BytesPerSecond const in_flight = requests.block * requests.depth / (host.drive_latency + requests.block / drive);
  return std::min(capacity(cluster, {kind, 0}), in_flight);
}

} // namespace

Link host_memory_link(Cluster const& cluster, Rank device) {
  return {Kind::host_memory, part_of(cluster, device, host_of(cluster).sockets)};
}

std::vector<Link> copy_links(Cluster const& cluster, Rank device, CopyPath path) {
  switch (path) {
    case CopyPath::device_to_host: return device_links(cluster, device, true);
    case CopyPath::host_to_device: return device_links(cluster, device, false);
    case CopyPath::disk_to_host:
      return {drive_link(cluster, device, Kind::drive_read), host_memory_link(cluster, device)};
    case CopyPath::host_to_disk:
      return {host_memory_link(cluster, device), drive_link(cluster, device, Kind::drive_write)};
  }
  return {};
}

Demand copy_demand(Cluster const& cluster, CopyPath path, Bytes bytes, FileRequests const& requests) {
  HardwareProfile const& profile = cluster.profile;
  Host const& host = host_of(cluster);
  bool const of_device = path == CopyPath::device_to_host || path == CopyPath::host_to_device;
  BytesPerSecond rate(1e30);
  for (Link const link : copy_links(cluster, Rank(0), path))
    rate = std::min(rate, capacity(cluster, link));
  if (!of_device)
    rate = std::min(
        rate, drive_rate(cluster, path == CopyPath::disk_to_host ? Kind::drive_read : Kind::drive_write, requests));
  Seconds const latency = of_device ? profile.kernel_fixed : host.drive_latency;
  Demand demand;
  demand.issue = demand.lead = profile.issue;
  demand.device = TransferDemand{{{latency, {{bytes, rate, {}}}}}};
  if (of_device)
    demand.memory_bandwidth_share = bytes / (latency + bytes / rate) / profile.chip.memory_bandwidth;
  return demand;
}

} // namespace foreplan

// The demand of a copy between a device, its host's memory and the host's drives. Like transfers between devices, a copy is
// a flow over links: devices that copy at the same time share switches, memory and drives. Needs Node::host.
#pragma once

#include "cluster/links.hpp"
#include "timing/demand.hpp"

#include <vector>

namespace foreplan {

// Host memory is pinned and on the device's own socket.
enum class CopyPath : std::uint8_t { device_to_host, host_to_device, disk_to_host, host_to_disk };

// Requests that a reader or writer of files keeps in flight: by default those of DeepSpeed's asynchronous I/O
// ("aio": block_size, queue_depth).
struct FileRequests {
  Bytes block = Bytes(1 << 20);
  int depth = 8;
};

// The memory of the device's socket.
Link host_memory_link(Cluster const& cluster, Rank device);
// The links that a copy to or from the device passes.
std::vector<Link> copy_links(Cluster const& cluster, Rank device, CopyPath path);

// One phase: a latency, and one flow of `bytes` > 0 at the rate of a copy alone, which holds for every device of the
// cluster; the flow's links, each once, are the caller's to fill in from copy_links(). A copy to or from a drive moves
// min(drives, requests in flight * block / (latency + block / drive)).
// Throws InputError for a profile without the host or without drives.
Demand copy_demand(Cluster const& cluster, CopyPath path, Bytes bytes, FileRequests const& requests = {});

} // namespace foreplan

// Channels that a collective runs on: one thread block each, so as many multiprocessors as it takes.
#pragma once

#include "timing/collectives/curve.hpp"

namespace foreplan {

// As NCCL's enqueue does: of `most` channels so many that each has enough bytes for its threads. The least a thread:
// 8 bytes with LL (times the ranks on a ring) and LL128, 64 with Simple, 512 with NVLS ("threadThresholds" of its log,
// nccl #892); 512 threads, 640 with LL128 (notes: hardware.md B5). NVLS fills its links with 16 channels (nccl #1041). Sends
// take one channel a chunk of 512 KiB inside a node, of 128 KiB between nodes.
// `bytes`: nccl-tests' size.
int channels_of(CollectiveAlgorithm algorithm, Protocol protocol, GroupShape const& shape, double bytes, int most);

} // namespace foreplan

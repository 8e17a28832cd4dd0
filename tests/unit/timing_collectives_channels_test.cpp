#include "timing/collectives/channels.hpp"

#include "tests/catch.hpp"

using namespace foreplan;

namespace {

GroupShape group(int members, int nodes) {
  return {.members = members, .nodes = nodes, .on_a_node = members / nodes, .node_devices = 8};
}

} // namespace

// A ring with Simple needs 512 threads * 64 bytes = 32 KiB a channel: 8 channels for 256 KiB, never more than there are.
// With LL 512 * 8 * 8 ranks, as much. A tree with LL128 640 * 8: 25 channels for 128 000 bytes.
TEST_CASE("a collective takes as many channels as have work", "[collectives]") {
  using enum CollectiveAlgorithm;
  CHECK(channels_of(ring, Protocol::simple, group(8, 1), 256 * 1024, 16) == 8);
  CHECK(channels_of(ring, Protocol::simple, group(8, 1), 1 << 30, 16) == 16);
  CHECK(channels_of(ring, Protocol::ll, group(8, 1), 256 * 1024, 16) == 8);
  CHECK(channels_of(ring, Protocol::ll, group(8, 1), 1, 16) == 1);
  CHECK(channels_of(tree, Protocol::ll128, group(16, 2), 128000, 32) == 25);
  CHECK(channels_of(nvls, Protocol::simple, group(8, 1), 1 << 30, 24) == 16); // fills its links
  CHECK(channels_of(direct, Protocol::simple, group(2, 1), 2 << 20, 16) == 4);
  CHECK(channels_of(direct, Protocol::simple, group(2, 2), 2 << 20, 32) == 16);
  CHECK(channels_of(ring, Protocol::simple, group(8, 1), 1 << 30, 0) == 0);
}

TEST_CASE("more bytes never take fewer channels", "[collectives]") {
  for (CollectiveAlgorithm const algorithm :
       {CollectiveAlgorithm::ring, CollectiveAlgorithm::tree, CollectiveAlgorithm::nvls, CollectiveAlgorithm::direct})
    for (Protocol const protocol : {Protocol::ll, Protocol::ll128, Protocol::simple}) {
      int before = 1;
      for (double bytes = 1; bytes < 1e11; bytes *= 1.3) {
        int const now = channels_of(algorithm, protocol, group(16, 2), bytes, 24);
        CHECK(now >= before);
        before = now;
      }
    }
}

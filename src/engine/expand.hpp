// A ring collective as what it is made of: point-to-point steps between neighbours. The independent check of taking it
// as one fluid transfer (`--expand`).
//
// This cannot be made from a Demand: that knows bytes and links of the whole, not who sends to whom. It needs one class
// a rank (an unfolded program), the members in ring order, the links from each to the next, and two streams of its own
// on every member for sends and receives.
#pragma once

#include "engine/folded_program.hpp"

#include <cstdint>
#include <vector>

namespace foreplan {

struct Ring {
  std::vector<std::int32_t> members;         // classes in ring order, at least two
  std::vector<std::vector<LinkUse>> to_next; // by member: the links from it to the next
  Bytes bytes;                               // V: of the whole tensor
  int rounds = 0;                            // all-reduce 2(n-1); all-gather and reduce-scatter n-1
  Seconds latency;                           // alpha, of one step
  BytesPerSecond rate_cap;                   // B, of one step
  std::uint8_t stream = 0;                   // of the collective
  std::uint8_t send_stream = 0;              // of its steps
  std::uint8_t receive_stream = 0;
};

// As one transfer: `rounds` latencies, then rounds * V/n bytes over all links at one rate. Alone on links of at least
// the cap both forms take rounds * (alpha + V / (n B)).
TransferDemand fluid_ring(Ring const& ring);

// What the steps of a ring share; made once a ring.
struct RingSteps {
  std::int32_t first_channel = 0;    // communicator: from member i to its next is first_channel + i
  std::vector<std::int32_t> demands; // of one step, by channel
  std::int32_t nothing = 0;          // demand of an item that only orders
};
RingSteps add_ring_steps(FoldedProgram& program, Ring const& ring);

// Appends the items of one member that stand for the collective: an item on the collective's stream with its waits, in
// each round a send and a receive (a member sends on what it received in the round before), and an item on the
// collective's stream that waits for the last of both. Returns the last item's index: what waits for the collective
// waits for it.
std::int32_t append_ring_steps(Block& block, Ring const& ring, RingSteps const& steps, std::size_t member,
                               std::vector<std::int32_t> const& waits);

} // namespace foreplan

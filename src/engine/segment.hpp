// Segments (design section 3): a straight run of items taken as one. With device-free time d and host time h before it,
//   d' = max(d + D, h + C)   h' = h + H
// and two runs one after the other compose exactly: D = D1 + D2, H = H1 + H2, C = max(C1 + D2, H1 + C2).
#pragma once

#include "engine/fold.hpp"

namespace foreplan {

struct Segment {
  Seconds device;                   // D: when the host is far ahead
  Seconds host;                     // H
  Seconds cold;                     // C: when device and host are both free at the start
  double busy_bandwidth = 0;        // memory-bandwidth share times seconds
  double busy_multiprocessors = 0;  // SM share times seconds: of its transfers
  std::array<Seconds, 4> compute{}; // device seconds by KernelClass
  Seconds exposed_tp;               // of D, not under compute
  Seconds hidden_tp;
  Seconds exposed_cp; // neither under compute nor beside what is exposed of tp
  Seconds hidden_cp;
};

Segment compose(Segment const& first, Segment const& second);

// One block of a folded program on an otherwise empty machine, its side streams joined at both ends.
Segment segment_of(FoldedProgram const& program, Block const& block, BlockOrigin const& origin);

} // namespace foreplan

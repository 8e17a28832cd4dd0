// Where the step of one rank goes: every second is in exactly one part.
#pragma once

#include "units/quantity.hpp"

#include <array>
#include <cstdint>

namespace foreplan {

// Exposed means: the compute stream runs nothing, and this is the first of the listed things that does run.
struct Breakdown {
  std::array<Seconds, 4> compute{}; // by KernelClass
  Seconds exposed_tp;
  Seconds exposed_dp;
  Seconds exposed_pp; // transfers between stages
  Seconds host;       // the device waits for the host to issue
  Seconds bubble;     // it waits for other ranks
  // beside compute
  Seconds hidden_tp, hidden_dp, hidden_pp;

  [[nodiscard]] Seconds compute_total() const { return compute[0] + compute[1] + compute[2] + compute[3]; }
  [[nodiscard]] Seconds total() const { return compute_total() + exposed_tp + exposed_dp + exposed_pp + host + bubble; }
};

} // namespace foreplan

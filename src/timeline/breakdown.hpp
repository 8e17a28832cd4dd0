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
  Seconds exposed_cp;
  Seconds exposed_dp;
  Seconds exposed_pp;      // transfers between stages
  Seconds exposed_offload; // the host's work and copies between memories
  Seconds host;            // the device waits for the host to issue
  Seconds bubble;          // it waits for other ranks
  // beside compute
  Seconds hidden_tp, hidden_cp, hidden_dp, hidden_pp, hidden_offload;
  // As HolisticTraceAnalysis reads the rank's trace, where a collective's kernel runs from its launch, and so also while it
  // waits for its peers: it is part of the bubble above and communication there.
  Seconds communicating; // at least one collective or transfer runs or waits for its peers
  Seconds overlapped;    // of that, under compute

  [[nodiscard]] Seconds compute_total() const { return compute[0] + compute[1] + compute[2] + compute[3]; }
  [[nodiscard]] Seconds non_compute() const { return communicating - overlapped; } // HolisticTraceAnalysis' word
  [[nodiscard]] Seconds total() const {
    return compute_total() + exposed_tp + exposed_cp + exposed_dp + exposed_pp + exposed_offload + host + bubble;
  }
};

// HolisticTraceAnalysis' overlap: of the time spent communicating, the share under compute.
inline double overlap(Breakdown const& breakdown) {
  return breakdown.communicating > Seconds(0) ? breakdown.overlapped / breakdown.communicating : 0;
}

} // namespace foreplan

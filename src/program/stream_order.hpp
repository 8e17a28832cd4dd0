// Happens-before on one rank, by vector clocks: streams run in order, waits order across streams.
#pragma once

#include "program/program.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace foreplan {

// For each chain of ops (a stream): how many of its ops are known to have ended.
template <std::size_t Chains>
struct VectorClock {
  std::array<std::int32_t, Chains> ended{};

  void merge(VectorClock const& other) {
    for (std::size_t i = 0; i < Chains; ++i)
      ended[i] = std::max(ended[i], other.ended[i]);
  }
  // The op that was the `tick`-th (1-based) of `chain` has ended.
  [[nodiscard]] bool covers(std::size_t chain, std::int32_t tick) const { return ended[chain] >= tick; }
  [[nodiscard]] bool covers(VectorClock const& other) const {
    for (std::size_t i = 0; i < Chains; ++i)
      if (ended[i] < other.ended[i])
        return false;
    return true;
  }
};

} // namespace foreplan

// Memory of a stage's ranks, read off the program's buffers in issue order.
//
// Temporaries come from a stream-ordered pool (as PyTorch's caching allocator on one stream): memory is taken when an op
// is issued and is free for the ops issued after the one that releases it. What is in use at a moment of the issue order,
// and so the peak, does not depend on timing. The verifier proves that the order of the device respects this (its rule
// `pool`), and the interpreter executes in such a pool.
#pragma once

#include "program/program.hpp"
#include "units/quantity.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace foreplan {

// Bytes by Category.
struct MemoryUse {
  std::array<std::int64_t, category_count> by_category{};
  [[nodiscard]] std::int64_t total() const {
    std::int64_t sum = 0;
    for (std::int64_t bytes : by_category)
      sum += bytes;
    return sum;
  }
  MemoryUse& operator+=(MemoryUse const& other) {
    for (std::size_t i = 0; i < by_category.size(); ++i)
      by_category[i] += other.by_category[i];
    return *this;
  }
};

struct MemoryPeak {
  MemoryUse use;            // at the peak
  std::int32_t element = 0; // of the stage program, where the peak lies
  int layer = -1;
  std::string op; // whose issue takes the last of it
};

// A point of the issue order, after one layer of a slot or one step-level op.
struct MemoryPoint {
  std::int32_t element = 0;
  int layer = -1;
  MemoryUse use;         // afterwards
  std::int64_t peak = 0; // total, on the way there
};

struct StageMemory {
  MemoryUse persistent; // of every moment
  MemoryPeak peak;      // the persistent part included
  std::vector<MemoryPoint> points;
  std::array<std::int64_t, memory_tier_count> elsewhere{}; // bytes in the other tiers, of every moment
};

// `keep_points`: also return the whole course.
StageMemory memory_of(Program const& program, StageProgram const& stage, bool keep_points = false);

} // namespace foreplan

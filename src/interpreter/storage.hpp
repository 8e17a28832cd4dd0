// Where the tensors of a stage program lie in the memory of a rank, fixed before anything runs. Ranks of a stage share
// the layout:
//   persistent buffers: the device's, the host's, the drives' | token ids | labels | arena of all temporaries
// An arena address is given at a buffer's first access in issue order and free for whatever is issued after the op that
// releases it, as in a stream-ordered caching allocator: a wait that is missing lets one buffer overwrite another.
#pragma once

#include "program/instances.hpp"
#include "program/program.hpp"

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace foreplan {

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// In what addresses count. The interpreter's elements are all of one size; a device's have their dtypes.
struct StorageUnits {
  std::array<std::int64_t, dtype_count> of_element = [] {
    std::array<std::int64_t, dtype_count> ones{};
    ones.fill(1);
    return ones;
  }();
  std::int64_t alignment = 1; // of a buffer's address
  [[nodiscard]] std::int64_t of(DType dtype) const { return of_element[static_cast<std::size_t>(dtype)]; }
};

// An instance whose operands and releases are resolved to addresses: units from the beginning of the rank's memory.
struct BoundOperand {
  std::int64_t address = 0; // on the first rank
  std::int64_t unit = 1;    // units of an element
  Tensor const* tensor = nullptr;
  // On the rank at `at`: a rank's own shard, or a block by hop, lies elsewhere on each.
  [[nodiscard]] std::int64_t on(Coordinate const& at) const {
    return address + unit * (tensor->offset_on(at) - tensor->offset_on(Coordinate{}));
  }
};

struct BoundInstance {
  Op const* op = nullptr;
  MicroBatch micro_batch;
  std::int32_t first_operand = 0; // in StageStorage::operands: reads, then writes
  std::int32_t reads = 0;
  std::int32_t writes = 0;
  std::int32_t first_release = 0; // in StageStorage::releases
  std::int32_t release_count = 0;
};

struct StageStorage {
  std::vector<Instance> instances;
  std::vector<BoundInstance> bound; // of equal positions
  std::vector<BoundOperand> operands;
  std::vector<Range> releases;
  std::vector<std::int64_t> persistent; // address by BufferId of the stage; -1: a temporary
  Range drives;                         // addresses of what lives on drives
  std::int64_t tokens = 0;              // address of the token ids, micro-batch by micro-batch
  std::int64_t labels = 0;
  std::int64_t arena = 0;
  std::int64_t size = 0;
  std::int64_t peak =
      0; // units that the device's buffers (not the ids) use at most at once; what addresses leave free is not counted
  StorageUnits units;
  std::vector<BoundOperand> initial; // what holds a value when a step begins
};

// Which free block of the arena a buffer takes, if any is large enough.
enum class Reuse : std::uint8_t {
  same_size, // the one of its very size that was freed last, else the one that was freed first
  last_freed // the one that was freed last: the shortest time between a release and the next use of the memory
};

// What holds no value when a step begins on the rank at `at`.
std::vector<Range> undefined_ranges(StageStorage const& storage, Coordinate const& at);

// Throws std::runtime_error when a tensor exceeds its buffer. Needs no well-formed program otherwise.
StageStorage lay_out(Program const& program, StageProgram const& stage, Reuse reuse, StorageUnits const& units = {});

} // namespace foreplan

// What a report leaves out for its length, for notebooks that draw: the pipeline's passes, memory over the issue order, the
// ranks' places.
#pragma once

#include "timeline/memory.hpp"
#include "units/ids.hpp"
#include "units/quantity.hpp"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace foreplan {

// One F, B or W on the compute stream of a stage's slowest rank, from its first kernel's start to its last one's end.
struct PassSpan {
  Stage stage;
  SlotKind kind = SlotKind::forward;
  Chunk chunk;
  MicroBatch micro_batch;
  Seconds start;
  Seconds end;
};

// After one element of a stage's issue order.
struct MemoryMoment {
  std::string what; // "F of micro-batch 3", "adam of bucket 0"
  MemoryUse use;
  std::int64_t peak = 0; // total, on the way there
  Seconds start;         // when the compute stream of the stage's slowest rank ran it; of what does not run there:
  Seconds end;           // both when the stream had come to it
};

struct RankPlace {
  Rank rank;
  int tp = 0;
  int dp = 0;
  int pp = 0;
  int node = 0;
};

struct Details {
  std::vector<PassSpan> passes;                  // by stage, in the order of time
  std::vector<std::vector<MemoryMoment>> memory; // by stage
  std::vector<RankPlace> ranks;
};

nlohmann::ordered_json to_json(Details const& details);

} // namespace foreplan

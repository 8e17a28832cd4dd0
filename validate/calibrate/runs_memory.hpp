// How well peak memory of published training runs is predicted, counted as each source counts it, and how often the
// verdict (fits, does not fit) is right.
#pragma once

#include "planner/allocator.hpp"
#include "planner/simulate.hpp"
#include "validate/calibrate/error_table.hpp"
#include "validate/calibrate/runs_rows.hpp"
#include "validate/calibrate/statistics.hpp"

#include <string>
#include <vector>

namespace foreplan {

// What a source's figure counts.
//   allocated   tensors, as the framework's allocator reports its peak
//   reserved    what that allocator holds: also its unused blocks
//   device      what nvidia-smi shows: also the allocator's unused blocks, context, libraries, communicators
enum class MemoryCount : std::uint8_t { allocated, reserved, device };

struct JudgedMemory {
  PublishedRun run;
  MemoryCount count = MemoryCount::allocated;
  MemoryPeak peak;      // of the stage that the source counts
  int stage = 0;        // that one
  double predicted = 0; // bytes, counted like the source
  double needed = 0;    // bytes of the fullest stage, blocks that the allocator cannot use included
  double usable = 0;    // of the card, for the allocator
  double fits = 0;      // probability
};

struct MemoryAccuracyReport {
  std::string data;
  std::vector<JudgedMemory> rows;
  std::map<std::string, int> left_out;
};

// `data`: a table with the columns of published/oom.csv; empty: that one.
MemoryAccuracyReport memory_accuracy(std::string const& data = {});
std::vector<ErrorLine> memory_lines(MemoryAccuracyReport const& report);
std::string memory_figures_csv(MemoryAccuracyReport const& report); // as run_figures_csv(), and wrong verdicts
std::string memory_accuracy_text(MemoryAccuracyReport const& report);
std::string memory_accuracy_json(MemoryAccuracyReport const& report);

} // namespace foreplan

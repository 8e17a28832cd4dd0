// The report of one plan: one record, which is also the schema of its JSON. Text and JSON are made from it and add nothing.
#pragma once

#include "plan/plan.hpp"
#include "timeline/breakdown.hpp"
#include "timeline/critical_path.hpp"
#include "timeline/memory.hpp"
#include "units/quantity.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace foreplan {

struct StageReport {
  Stage stage;
  std::string layers;  // "embedding, blocks 1-10"
  Breakdown breakdown; // of its slowest rank class
  MemoryUse persistent;
  MemoryUse peak;
  std::string peak_moment; // "B of micro-batch 3, layer 12: attention backward"
};

enum class Fit { fits, borderline, too_large };

struct Report {
  std::string model;
  std::string hardware;
  int devices = 0;
  Plan plan;
  std::string engine; // "fast engine on segments", "SimGrid, kernel by kernel"
  std::int64_t items = 0;

  Seconds step;
  double band = 0;       // of the step, relative; band_convention says what lies within; 0: not known
  double band_known = 0; // share of the step that it rests on
  double tokens_per_second = 0;
  double mfu = 0; // training_flops_per_token over the dense bf16 peak of all devices
  Flops flops_per_token;
  double hfu = 0;       // executed_flops over the same peak
  Flops executed_flops; // of matrix products, recomputed ones too, of all devices in a step
  FlopsPerSecond peak;  // of a device: dense bf16

  Breakdown breakdown; // mean over all ranks
  std::vector<StageReport> stages;
  CriticalPath critical_path;

  Bytes usable_memory;   // of a device, for tensors
  Bytes reserved_memory; // of a device, not for tensors: context, libraries, communicators
  Bytes peak_memory;     // of the stage that needs most
  Bytes host_memory;     // pinned by a rank of the stage that needs most
  Bytes disk_memory;     // that such a rank keeps on drives
  Bytes host_share;      // of the node's memory, one device's; of its drives. 0: the profile does not say
  Bytes disk_share;
  double headroom = 0; // share of the usable memory that a plan must leave free
  Fit fit = Fit::fits;
  Bytes needed_memory;        // of the stage that needs most, with what the allocator cannot reuse
  double fit_probability = 0; // that this is no more than is usable
  std::string risk;           // what may make the step longer, a line each; empty: nothing known
};

// What the figures of memory leave out.
inline constexpr std::string_view memory_not_modelled = "workspaces of libraries beyond the reserved memory";

// How the band is meant.
inline constexpr std::string_view band_convention =
    "two thirds of steps lie within, if kernels and collectives deviate as those measured and left out of the fits: "
    "fully "
    "correlated within matrix products, attention, memory-bound kernels, communication; independent between these";

inline constexpr std::string_view mfu_convention = "6 N + causal attention, no recomputation; dense bf16 peak";
inline constexpr std::string_view hfu_convention =
    "matrix products that run, recomputed ones too (as in the backward of flash attention); dense bf16 peak";

nlohmann::ordered_json to_json(Report const& report);

// A sentence, where the step goes, the critical path, memory by stage: one screen.
std::string to_text(Report const& report);

// What memory holds at each stage's peak.
std::string memory_table(Report const& report);

// The memory's verdict in a sentence.
std::string memory_sentence(Report const& report);

// The stage whose ranks need most memory.
StageReport const& fullest_stage(Report const& report);

// By how much the slowest stage computes longer than the mean of the stages: others wait for it.
struct Imbalance {
  Stage slowest;
  double excess = 0;
};
Imbalance imbalance(Report const& report);

std::string_view to_string(Fit fit);

} // namespace foreplan

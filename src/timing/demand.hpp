// Demand: what an op asks of the machine. Cost models make demands; only an engine makes time of them.
#pragma once

#include "cluster/evidence.hpp"
#include "units/quantity.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace foreplan {

// Links of a flow: `multiplicity` units of the link's capacity are used for each unit of the flow's rate.
struct LinkUse {
  std::int32_t link = 0;
  std::int32_t multiplicity = 1;
  friend auto operator<=>(LinkUse const&, LinkUse const&) = default;
};

struct Flow {
  Bytes bytes;             // > 0
  BytesPerSecond rate_cap; // the rate when alone on an empty machine, if the links allow it
  std::vector<LinkUse> links;
};

// Alone: latency + the longest of its flows' times, which run in parallel.
struct Phase {
  Seconds latency;
  std::vector<Flow> flows;
};

// A kernel on the device. `lead`: how long before its start the host must have begun to issue it (for a plain op this is
// its issue cost; for a segment C - D of the design).
struct ComputeDemand {
  Seconds alone;
};

struct TransferDemand {
  std::vector<Phase> phases; // one after the other
};

struct Demand {
  Seconds issue; // host time it costs (H)
  Seconds lead;  // from the beginning of its issue to the earliest start on the device; = issue for a single op
  std::variant<ComputeDemand, TransferDemand> device;
  double sm_share = 0;               // of the device's SMs, taken from whatever runs beside it
  double memory_bandwidth_share = 0; // of the device's memory bandwidth while it runs at full speed
  Evidence evidence = Evidence::datasheet;
  double band = 0; // standard deviation of log(measured / this duration) of left-out measurements; 0: not known
};

// On an empty machine, without its issue.
inline Seconds alone_seconds(Demand const& demand) {
  if (ComputeDemand const* compute = std::get_if<ComputeDemand>(&demand.device))
    return compute->alone;
  Seconds sum;
  for (Phase const& phase : std::get<TransferDemand>(demand.device).phases) {
    Seconds longest;
    for (Flow const& flow : phase.flows)
      longest = std::max(longest, flow.bytes / flow.rate_cap);
    sum += phase.latency + longest;
  }
  return sum;
}

} // namespace foreplan

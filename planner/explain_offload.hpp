// Which bandwidth per device hides what lives outside it? In the terms of ZeRO-Infinity (arXiv 2104.07857, section 4):
// bytes that a step moves, and flops for each of them.
#pragma once

#include "planner/simulate.hpp"

#include <string>
#include <vector>

namespace foreplan {

// Share of the peak that is reached when every byte moved at `bandwidth` comes with `intensity` flops, and the one does
// not run under the other (section 4.1).
double efficiency(double intensity, BytesPerSecond bandwidth, FlopsPerSecond peak);

// Flops for each byte moved, by the paper's counts (section 4.1): with one forward, its recomputation and one backward,
// 8 s b flops a parameter.
double parameter_intensity(double sequence, double batch); // 2 x 4 bytes: three loads, one store
double optimizer_intensity(double sequence, double batch); // 2 x 16 bytes
double checkpoint_intensity(double hidden, double blocks_between_checkpoints = 1); // one hidden state each

// What one sort of data would move if it lived on the host, or on drives, on the rank that moves most.
struct OffloadNeed {
  std::string what;      // "parameters"
  Bytes bytes;           // of a step, in the direction that decides
  std::string direction; // "up"
  double intensity = 0;  // executed flops of a step for each byte, both directions
  std::string under;     // what it can hide under
  Seconds time;          // of that
  BytesPerSecond hides;  // bytes / time
  BytesPerSecond host;   // what a device gets of its host when all copy at once; nothing: the profile does not say
  BytesPerSecond drives; // likewise of drives
  Seconds exposed;       // at the host's rate; of optimizer states at the drives'
};

// Parameters (ZeRO-3's shards), gradients, optimizer states, checkpoints: those that the plan has. Computation as of
// the plan with everything on the device.
std::vector<OffloadNeed> explain_offload(Model const& model, Plan const& plan, Cluster const& cluster);

} // namespace foreplan

// How well ZeRO++ is predicted: published gains over ZeRO-3 (published/ratios.csv), and the phases of one step of
// either (DeepSpeed, docs/_tutorials/zeropp.md; rows r00119 and r00120 of published/runs.csv).
#pragma once

#include "model/model.hpp"
#include "plan/plan.hpp"
#include "validate/calibrate/csv.hpp"

#include <string>
#include <vector>

namespace foreplan {

// ZeRO-3 as Megatron-DeepSpeed runs it in fp16 with full recomputation: one sequence of so many tokens on each of so
// many V100; and with all of ZeRO++, the inner group a DGX-2.
Plan deepspeed_zero_3(std::int64_t tokens, int gpus);
Plan with_zero_pp(Plan plan);

// Throughput over that of ZeRO-3 on the row's network.
double zero_pp_gain(Model const& model, CsvRow const& row);

struct JudgedPhase {
  std::string what; // "ZeRO-3 forward"
  double measured = 0;
  double predicted = 0; // seconds; memory: GB
};

struct ZeroPpPhases {
  double network =
      0; // bytes a second of a node: what the source does not state, fitted to forwards, backwards and the gain
  std::vector<JudgedPhase> phases;
  JudgedPhase gain;   // ZeRO-3's step over ZeRO++'s
  JudgedPhase growth; // GB of memory at the peak
};
ZeroPpPhases zero_pp_phases();
std::string zero_pp_phases_text(ZeroPpPhases const& phases);

} // namespace foreplan

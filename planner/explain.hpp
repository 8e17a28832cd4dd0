// What one op of a plan costs, and from which numbers: amounts, the demand that the cost model makes of them, and the
// parameters of the profile with their kind and source.
#pragma once

#include "cluster/cluster.hpp"
#include "model/model.hpp"
#include "plan/plan.hpp"
#include "program/program.hpp"
#include "units/quantity.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace foreplan {

struct Operand {
  bool written = false;
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::bf16;
  Bytes bytes;
};

struct OpExplanation {
  std::string name;  // "gate-up"
  std::string kind;  // "linear_forward"
  std::string where; // "block, forward", "step"
  Stage stage;
  std::string stream;
  std::int64_t times = 0; // in a step, on a rank of the stage
  std::vector<Operand> operands;

  bool communication = false;
  Flops flops;
  Bytes bytes;           // read and written; of communication: that each member sends
  Seconds flops_at_peak; // of the chip's peak for the dtype
  Seconds bytes_at_peak; // of the memory bandwidth
  std::string group;     // of communication: "tp of 8 ranks"
  Seconds latency;       // of communication: of all phases
  BytesPerSecond rate;   // of communication: bytes over (alone - latency)

  Seconds alone;                           // on an empty machine
  Evidence evidence = Evidence::datasheet; // what `alone` rests on
  double band = 0;                         // spread of log(measured / predicted) where that is known; 0: it is not
  Seconds issue;                           // of the host
  double sm_share = 0;
  double memory_bandwidth_share = 0;
  std::string formula;
  std::string collective; // lines, with a fitted model: algorithm, formula, parameters, nearest curve, correction, band
  std::string product;    // lines, with a fitted model: limits, nearest measured products, correction
  std::vector<Source> parameters; // of the profile, that stand in the formula
};

// Every op that runs on a stage, each once, in the order of the program. The plan must be legal.
std::vector<OpExplanation> explain_ops(Model const& model, Plan const& plan, Cluster const& cluster, Stage stage);

} // namespace foreplan

// DeepSpeed's estimators of memory (deepspeed/runtime/zero/stage_1_and_2.py and stage3.py,
// estimate_zero2_model_states_mem_needs and estimate_zero3_model_states_mem_needs), which users compare with: model
// states alone. Left out: activations, gathered layers, buckets, context and libraries, fragmentation.
#pragma once

#include "planner/simulate.hpp"

#include <string>
#include <vector>

namespace foreplan {

struct Estimate {
  std::string options;   // "zero 3, optimizer and parameters on the host"
  Plan plan;             // that does so
  Bytes device, host;    // by DeepSpeed's code: of a device, of a node
  Bytes documented;      // of a device, by docs/code-docs/source/memory.rst; nought: as the code
  Bytes documented_host; // of a node, likewise
};

struct EstimatedModel {
  double parameters = 0;
  double largest_module = 0; // parameters of the largest module without children
};
EstimatedModel estimated(Model const& model);

// ZeRO 2 and 3 with more and more on the host, over all devices of the nodes. `plan`: whose other fields the plans
// take.
std::vector<Estimate> deepspeed_estimates(EstimatedModel const& model, int devices, int nodes, Plan const& plan);

} // namespace foreplan

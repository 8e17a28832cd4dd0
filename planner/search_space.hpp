// The plans that a search looks at.
#pragma once

#include "model/model.hpp"
#include "plan/plan.hpp"

#include <vector>

namespace foreplan {

struct SearchSpace {
  std::vector<Plan> plans;     // legal, in a fixed order
  std::int64_t enumerated = 0; // before the plan checker
};

// Every combination of tp (up to the devices of a node), pp, chunks, dp, micro-batch, recompute none or full, sequence
// parallelism and ZeRO 0 or 1 that uses all `devices` ranks.
SearchSpace search_space(Model const& model, int devices, int devices_per_node, std::int64_t sequence_length,
                         std::int64_t global_batch);

} // namespace foreplan

// The plans that a search looks at.
#pragma once

#include "model/model.hpp"
#include "plan/framework.hpp"
#include "plan/plan.hpp"
#include "planner/constraint.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace foreplan {

// Combinations that were left out, by the first rule of the plan checker (or the constraint) that each breaks.
struct Rejection {
  std::string rule;
  std::int64_t count = 0;
  std::string example; // the checker's text for the first of them
};

struct SearchSpace {
  std::vector<Plan> plans;         // legal, in a fixed order
  std::int64_t enumerated = 0;     // before the plan checker
  std::vector<Rejection> rejected; // most frequent first
};

// What is looked at only when asked for.
struct Allowed {
  bool offload = false;         // optimizer, parameters, checkpoints on the host
  bool drives = false;          // and on its drives
  bool quantized = false;       // ZeRO++: secondary shards in every node, codes on the wire
  bool split_schedules = false; // zero-bubble schedules, which few trainers have: ZB-H1, ZB-V, V-Half
};

// Every combination of tp (up to the devices of a node), pp, schedule and chunks, dp, micro-batch, recompute none or full, sequence
// parallelism and ZeRO 0 or 1 that uses all `devices` ranks; of interleaved plans those whose chunks have equally many
// blocks, or layers with embedding and head counted. Where a constraint names them, also Domino and tp_overlap. Each as
// the framework runs it, if there is one.
SearchSpace search_space(Model const& model, int devices, int devices_per_node, std::int64_t sequence_length,
                         std::int64_t global_batch, std::vector<Constraint> const& constraints = {},
                         std::optional<Framework> const& framework = {}, Allowed allowed = {});

} // namespace foreplan

// The plans of the equivalence tests: every combination of the strategies that can be combined on 2, 4 and 8 ranks.
#pragma once

#include "model/model.hpp"
#include "plan/plan.hpp"

#include <string>
#include <vector>

namespace foreplan {

struct EquivalenceCase {
  Model model;
  Plan plan;
};

// What a case is about, one word a setting ("tp 2", "unfused", "tied"): for messages, and to count which pairs of
// settings were run together.
std::vector<std::string> settings_of(EquivalenceCase const& test);
inline constexpr std::size_t first_drawn_setting = 9; // those before are enumerated
std::string describe(EquivalenceCase const& test);

// The legal part (plan/plan_checker.hpp) of the full product of model (GPT, Llama) x (tp, pp, dp) of 2, 4 and 8 ranks x
// schedule x sequence parallelism x ZeRO stage x recompute (none, selective, full, each of all blocks or of the first of
// every chunk). What is left of a plan and a model (micro-batch, buckets, dtypes, attention, p2p, layers, tied embeddings,
// dropout) is drawn by a fixed rule, `draws` different times for each.
std::vector<EquivalenceCase> equivalence_cases(int draws);
// Drawn at random: how ZeRO stages 1 to 3 share out, gather and reduce.
std::vector<EquivalenceCase> sharding_cases(int count);
// ZeRO++ with codes on the wire: near the step of one device, not equal to it.
std::vector<EquivalenceCase> quantized_cases();

// The same with optimizer, parameters and checkpoints on host or disk.
std::vector<EquivalenceCase> offload_cases(int count);

// The same for context parallelism of each type, with tp, sp, pp, dp, zero and recompute.
std::vector<EquivalenceCase> context_parallel_cases(int draws);

// The same for Domino with 2 and 4 slices in each form, column slices and both, with tp, pp, dp, schedules, zero 0 to 3 and
// recompute.
std::vector<EquivalenceCase> domino_cases(int draws);

// The same for products that overlap tensor-parallel communication.
std::vector<EquivalenceCase> tp_overlap_cases(int draws);

} // namespace foreplan

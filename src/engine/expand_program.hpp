// `--expand`: a whole step with every tensor- and data-parallel collective as one ring over its members in rank order,
// either as one transfer (what the engines are given) or as its 2 (n - 1) or n - 1 rounds of point-to-point steps (what it
// stands for). Run both: the difference is what taking a collective as one transfer costs in truth on this plan.
#pragma once

#include "engine/fold.hpp"

namespace foreplan {

enum class RingForm { transfer, steps };

inline constexpr int most_expanded_ranks = 64;

// Every rank is simulated, without interference (steps have no SM share of their own). For at most most_expanded_ranks.
FoldedProgram expand_program(Program const& program, Cluster const& cluster, RingForm form);

} // namespace foreplan

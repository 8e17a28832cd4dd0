// Recomputation of no more blocks than memory asks for.
#pragma once

#include "model/model.hpp"
#include "plan/plan.hpp"
#include "units/quantity.hpp"

#include <optional>

namespace foreplan {

struct PartlyRecomputed {
  Plan plan; // full recompute of the first `recompute_layers` blocks of every chunk
  Bytes peak;
};

// The plan with full recompute of as few blocks of every chunk as leave the headroom free (memory falls with their
// number); nothing when that takes all of them, or when all of them are not enough. `all`: the peak with all.
std::optional<PartlyRecomputed> fewest_recomputed(Model const& model, Plan plan, Bytes all, Bytes usable,
                                                  double headroom);

} // namespace foreplan

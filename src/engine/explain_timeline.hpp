// Reading a timeline of a folded program: the breakdown of a class.
#pragma once

#include "engine/fold.hpp"
#include "timeline/breakdown.hpp"
#include "timeline/timeline.hpp"

namespace foreplan {

// Needs a timeline with entries.
Breakdown breakdown_of(Folding const& folding, Timeline const& timeline, std::size_t class_index);

} // namespace foreplan

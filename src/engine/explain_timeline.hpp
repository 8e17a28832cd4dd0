// Reading a timeline of a folded program: the breakdown of a class, the critical path, the kernels for a trace.
// All need a timeline with entries; `program` is what was folded.
#pragma once

#include "engine/fold.hpp"
#include "timeline/breakdown.hpp"
#include "timeline/chrome_trace.hpp"
#include "timeline/critical_path.hpp"
#include "timeline/timeline.hpp"

#include <vector>

namespace foreplan {

// Whether the block is a run of layers taken as one item.
bool is_segment(BlockOrigin const& origin);

Breakdown breakdown_of(Folding const& folding, Timeline const& timeline, std::size_t class_index);

// From the end of the step back over what each item waited for: the item that ended last of those on its stream, of its
// waits and, for a transfer, of its last member's; or the host, back to the begin of the step or to what the host had
// waited for. In order of time and without gaps: the steps' lengths add up to the timeline's step.
std::vector<PathStep> critical_path_of(Program const& program, Folding const& folding, Timeline const& timeline);

// What the class's representative runs, as its profiler would show it: a collective or transfer from its launch on this
// rank, so with the time it waits for its peers.
TraceRank trace_of(Program const& program, Folding const& folding, Timeline const& timeline, std::size_t class_index);

} // namespace foreplan

// A measurement as the timeline type of the predictions.
#pragma once

#include "timeline/chrome_trace.hpp"
#include "timeline/timeline.hpp"
#include "validate/devices/measure.hpp"

#include <vector>

namespace foreplan {

// Where an instance stands in the issue order as the engines count it (kernel by kernel): the use is a step-level op or a
// layer of a slot, the item its op there.
struct Place {
  std::int32_t use = 0;
  std::int32_t item = 0;
};
std::vector<Place> places_of(Program const& program, StageProgram const& stage); // by instance

// Every rank a class, by rank. A collective's start is when its last member came, as in a prediction; a send's, too, though
// its end may be earlier than the receive's: small messages are buffered.
Timeline timeline_of(Program const& program, Run const& run);

// All ranks for write_chrome_trace().
std::vector<TraceRank> trace_of(Program const& program, Run const& run);

} // namespace foreplan

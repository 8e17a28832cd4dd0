// Timeline: what ran when. A prediction and a measurement are the same kind of object.
#pragma once

#include "units/quantity.hpp"

#include <cstdint>
#include <vector>

namespace foreplan {

// One item of one class, from when it ran on the device (a transfer: from when all members had come) to its end.
struct TimelineEntry {
  std::int32_t use = 0;  // position in the class's issue order
  std::int32_t item = 0; // in the use's block
  double arrival = 0;    // seconds: its stream was free for it and its waits were over
  double start = 0;
  double end = 0;
};

struct Timeline {
  std::vector<std::vector<TimelineEntry>> classes; // by class, in order of ends
  Seconds step;                                    // end of the last item
  std::int64_t items = 0;                          // that ran
};

} // namespace foreplan

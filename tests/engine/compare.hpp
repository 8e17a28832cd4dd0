// The largest difference between two timelines of one program.
#pragma once

#include "tests/engine/oracle.hpp"
#include "timeline/timeline.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace foreplan::testing {

inline constexpr double nothing_in_common = 1e300;

// Over arrivals, starts and ends of all entries, and the step's end.
inline double worst_difference(Timeline const& a, Timeline const& b) {
  if (a.classes.size() != b.classes.size() || a.items != b.items)
    return nothing_in_common;
  double worst = std::abs(a.step.value() - b.step.value());
  for (std::size_t c = 0; c < a.classes.size(); ++c) {
    std::map<std::pair<int, int>, TimelineEntry> known;
    for (TimelineEntry const& entry : a.classes[c])
      known[{entry.use, entry.item}] = entry;
    if (known.size() != b.classes[c].size())
      return nothing_in_common;
    for (TimelineEntry const& entry : b.classes[c]) {
      auto const other = known.find({entry.use, entry.item});
      if (other == known.end())
        return nothing_in_common;
      worst = std::max({worst, std::abs(entry.end - other->second.end), std::abs(entry.start - other->second.start),
                        std::abs(entry.arrival - other->second.arrival)});
    }
  }
  return worst;
}

inline Timeline oracle_timeline(FoldedProgram const& program) {
  Timeline timeline;
  double step = 0;
  for (auto const& instances : oracle::run(program)) {
    timeline.classes.emplace_back();
    for (oracle::Instance const& x : instances) {
      timeline.classes.back().push_back({x.use, x.item, x.arrival, x.start, x.end});
      step = std::max(step, x.end);
      ++timeline.items;
    }
  }
  timeline.step = Seconds(step);
  return timeline;
}

} // namespace foreplan::testing

// Sets of seconds: disjoint, ascending intervals.
#pragma once

#include <vector>

namespace foreplan {

struct Interval {
  double begin, end;
};

// Disjoint and ascending; touching intervals joined.
std::vector<Interval> joined(std::vector<Interval> intervals);
double length(std::vector<Interval> const& intervals);
std::vector<Interval> common(std::vector<Interval> const& a, std::vector<Interval> const& b);
std::vector<Interval> without(std::vector<Interval> const& a, std::vector<Interval> const& b);

} // namespace foreplan

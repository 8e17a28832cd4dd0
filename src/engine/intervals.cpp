#include "engine/intervals.hpp"

#include <algorithm>

namespace foreplan {

std::vector<Interval> joined(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(), [](Interval a, Interval b) { return a.begin < b.begin; });
  std::vector<Interval> result;
  for (Interval interval : intervals) {
    if (!result.empty() && interval.begin <= result.back().end)
      result.back().end = std::max(result.back().end, interval.end);
    else if (interval.end > interval.begin)
      result.push_back(interval);
  }
  return result;
}

double length(std::vector<Interval> const& intervals) {
  double sum = 0;
  for (Interval interval : intervals)
    sum += interval.end - interval.begin;
  return sum;
}

std::vector<Interval> common(std::vector<Interval> const& a, std::vector<Interval> const& b) {
  std::vector<Interval> result;
  for (std::size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    double const begin = std::max(a[i].begin, b[k].begin), end = std::min(a[i].end, b[k].end);
    if (end > begin)
      result.push_back({begin, end});
    (a[i].end < b[k].end ? i : k)++;
  }
  return result;
}

std::vector<Interval> without(std::vector<Interval> const& a, std::vector<Interval> const& b) {
  std::vector<Interval> result;
  std::size_t k = 0;
  for (Interval interval : a) {
    while (k < b.size() && b[k].end <= interval.begin)
      ++k;
    double begin = interval.begin;
    for (std::size_t i = k; i < b.size() && b[i].begin < interval.end; ++i) {
      if (b[i].begin > begin)
        result.push_back({begin, b[i].begin});
      begin = std::max(begin, b[i].end);
    }
    if (begin < interval.end)
      result.push_back({begin, interval.end});
  }
  return result;
}

} // namespace foreplan

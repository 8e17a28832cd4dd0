// Why one plan is slower than another: the difference of their steps, part by part of the breakdown, each with the reason
// that the plans give for it.
#pragma once

#include "report/report.hpp"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace foreplan {

struct PartDifference {
  std::string_view part; // "bubble"
  Seconds a;
  Seconds b;
  std::string reason; // empty: none that the plans tell
  [[nodiscard]] Seconds difference() const { return b - a; }
};

// In seconds of a step when both train the same tokens on as many devices; else in device-seconds of a million tokens.
struct Comparison {
  bool same_work = true;
  Seconds a;
  Seconds b;
  std::vector<PartDifference> parts; // largest difference first
};

Comparison compare(Report const& a, Report const& b);

// "bubble +300 ms, matrix products +120 ms, exposed tp communication -40 ms": the parts that say most, at most three.
std::string main_differences(Comparison const& comparison);

// A sentence, a table, reasons. `name_a` and `name_b` stand for the two in it.
std::string to_text(Comparison const& comparison, Report const& a, Report const& b, std::string_view name_a,
                    std::string_view name_b);
nlohmann::ordered_json to_json(Comparison const& comparison);

} // namespace foreplan

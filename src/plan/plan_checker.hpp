// The one rule set that says which plans are legal for a model: what compile() asks for, what the planner enumerates, and
// what a user is told about a plan that is not.
#pragma once

#include "model/model.hpp"
#include "plan/plan.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace foreplan {

// A rule that the plan breaks.
struct PlanFinding {
  std::string rule;                  // its name: "tp divides heads"
  std::string text;                  // one line: "tp 3 does not divide 64 heads; valid: 1, 2, 4, 8"
  std::vector<std::int64_t> nearest; // valid values of the field that the rule is about, ascending; empty: not a number
};

// Empty: legal. Where the rules about sizes are broken (degrees, batch of less than one), those that build on them are not
// asked.
std::vector<PlanFinding> check(Model const& model, Plan const& plan);

} // namespace foreplan

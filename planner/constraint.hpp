// What a user asks of the plans that a search looks at: "tp=8", "pp<=4", "recompute!=full".
#pragma once

#include "plan/plan.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace foreplan {

struct Constraint {
  enum class Relation : std::uint8_t { equal, not_equal, less, less_equal, greater, greater_equal };
  std::int64_t (*field)(Plan const&) = nullptr;
  Relation relation = Relation::equal;
  std::int64_t value = 0; // of words (recompute, schedule): their position in the list of valid ones
  bool forbidden = false; // plans for which it holds are left out, not the others
  std::string text;       // "--require tp=8"
  std::string_view name;  // of the field: "tp"
};

// `option` is "--require" or "--forbid". Throws InputError, naming the valid fields, relations and words.
Constraint read_constraint(std::string const& option, std::string const& text);

bool allows(Constraint const& constraint, Plan const& plan);

} // namespace foreplan

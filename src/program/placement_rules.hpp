// What each kind of op does to placements: from those of the tensors it reads follow those of the tensors it writes.
// One axis at a time. A forgotten reduction is a partial sum read as a whole: found here without running anything.
#pragma once

#include "program/program.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace foreplan {

// Operands of one op, by position.
struct Operands {
  std::vector<Tensor const*> reads;
  std::vector<Tensor const*> writes;
};

// The placement along `axis` of each written tensor, or nothing when no rule covers what is read (`reason` says why).
// Op kinds that may write any placement (zero_fill, receive) return what the written tensor declares.
std::optional<std::vector<AxisPlacement>> written_placements(Op const& op, Operands const& operands, Axis axis,
                                                             std::string* reason = nullptr);

} // namespace foreplan

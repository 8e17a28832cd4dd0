// Costs of ops as they were measured on a machine, by kind and dtype: the block "ops" of a hardware profile, written by
// `foreplan calibrate --this-machine`. For machines whose own runner is measured; what the block does not have is
// predicted by the profile's other numbers.
#pragma once

#include "cluster/evidence.hpp"
#include "units/quantity.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace foreplan {

class JsonReader;

// seconds = fixed + flops * per_flop + bytes * per_byte + (bytes beyond `cached`) * per_cold_byte. Bytes of a kernel are
// those that it reads and writes, of a communication those that a member sends; `fixed` of a communication is of one
// step of a ring.
struct OpCost {
  std::string op;    // name of the kind, as in program/op_kinds.md
  std::string dtype; // of the narrowest floating-point operand
  double fixed = 0;
  double per_flop = 0;
  double per_byte = 0;
  double cached = 0; // bytes
  double per_cold_byte = 0;
  int rows = 0;    // measured ones behind it
  double band = 0; // standard deviation of log(measured / this)

  [[nodiscard]] double seconds(double flops, double bytes) const {
    return fixed + flops * per_flop + bytes * per_byte + (bytes > cached ? bytes - cached : 0) * per_cold_byte;
  }
};

struct OpCosts {
  Evidence evidence = Evidence::measured;
  std::vector<OpCost> costs; // in ascending order of op and dtype
};

OpCost const* find(OpCosts const& costs, std::string_view op, std::string_view dtype); // nullptr: not measured

// Reads the block; its origin is added to `sources`.
OpCosts read_op_costs(JsonReader const& reader, std::vector<Source>& sources);
// The block as a member of a profile: "\"ops\": {...}".
std::string op_costs_member(OpCosts const& costs, std::string const& source);

} // namespace foreplan

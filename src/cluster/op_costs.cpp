#include "cluster/op_costs.hpp"

#include "io/json_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

namespace foreplan {
namespace {

bool before(OpCost const& cost, std::tuple<std::string_view, std::string_view> key) {
  return std::tuple<std::string_view, std::string_view>(cost.op, cost.dtype) < key;
}

// Reciprocal of a rate; 0 when the key is absent: the op does not depend on it.
template <class Rate>
double read_inverse(JsonReader const& reader, std::string_view key) {
  auto const entry = reader.find(key);
  if (!entry)
    return 0;
  double const rate = entry->quantity<Rate>().value();
  if (rate == 0)
    entry->fail("must be more than 0");
  return 1 / rate;
}

OpCost read_cost(JsonReader const& reader) {
  reader.expect_keys({"op", "dtype", "fixed", "flop_rate", "byte_rate", "cached", "cold_byte_rate", "rows", "band"});
  OpCost cost;
  cost.op = reader["op"].text();
  cost.dtype = reader["dtype"].text();
  cost.fixed = reader["fixed"].quantity<Seconds>().value();
  cost.per_flop = read_inverse<FlopsPerSecond>(reader, "flop_rate");
  cost.per_byte = read_inverse<BytesPerSecond>(reader, "byte_rate");
  cost.per_cold_byte = read_inverse<BytesPerSecond>(reader, "cold_byte_rate");
  if (auto const cached = reader.find("cached"))
    cost.cached = cached->quantity<Bytes>().value();
  cost.rows = static_cast<int>(reader["rows"].integer(1, 1 << 30));
  cost.band = reader["band"].number(0, 10);
  return cost;
}

std::string rate_member(std::string_view key, double inverse, std::string_view unit) {
  constexpr double giga = 1e9;
  return inverse > 0 ? fmt::format(", \"{}\": \"{:.5g} {}\"", key, 1 / (giga * inverse), unit) : "";
}

} // namespace

OpCost const* find(OpCosts const& costs, std::string_view op, std::string_view dtype) {
  auto const found = std::lower_bound(costs.costs.begin(), costs.costs.end(), std::tuple(op, dtype), before);
  return found != costs.costs.end() && found->op == op && found->dtype == dtype ? &*found : nullptr;
}

OpCosts read_op_costs(JsonReader const& reader, std::vector<Source>& sources) {
  reader.expect_keys({"kind", "source", "costs"});
  OpCosts result;
  result.evidence = reader["kind"].choice<Evidence>(
      {{"datasheet", Evidence::datasheet}, {"fitted", Evidence::fitted}, {"measured", Evidence::measured}});
  for (JsonReader const& element : reader["costs"].elements()) {
    OpCost cost = read_cost(element);
    if (!result.costs.empty() && !before(result.costs.back(), std::tuple(std::string_view(cost.op), cost.dtype)))
      element["op"].fail("must come after the one before it, in the order of op and dtype");
    result.costs.push_back(std::move(cost));
  }
  sources.push_back(
      {reader.path(), result.evidence, reader["source"].text(), fmt::format("{} costs", result.costs.size())});
  return result;
}

std::string op_costs_member(OpCosts const& costs, std::string const& source) {
  constexpr double us = 1e-6, mega = 1e6;
  std::string text = "\"ops\": {\n    \"kind\": \"measured\",\n    \"source\": " + source + ",\n    \"costs\": [";
  for (OpCost const& cost : costs.costs) {
    text += &cost == costs.costs.data() ? "\n" : ",\n";
    text += fmt::format("      {{\"op\": \"{}\", \"dtype\": \"{}\", \"fixed\": \"{:.4g} us\"", cost.op, cost.dtype,
                        cost.fixed / us);
    text += rate_member("flop_rate", cost.per_flop, "GFLOP/s") + rate_member("byte_rate", cost.per_byte, "GB/s");
    if (cost.per_cold_byte > 0)
      text += fmt::format(", \"cached\": \"{:.4g} MB\"", cost.cached / mega) +
              rate_member("cold_byte_rate", cost.per_cold_byte, "GB/s");
    text += fmt::format(", \"rows\": {}, \"band\": {:.3f}}}", cost.rows, cost.band);
  }
  return text + "\n    ]\n  }";
}

} // namespace foreplan

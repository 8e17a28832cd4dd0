#include "units/text.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <span>
#include <stdexcept>

namespace foreplan {
namespace {

struct Unit {
  std::string_view name;
  double size; // in base units
};

constexpr double kibi = 1024;
constexpr double mebi = 1024 * kibi;
constexpr double gibi = 1024 * mebi;
constexpr double tebi = 1024 * gibi;
constexpr double bit = 0.125;

constexpr Unit decimal_bytes[] = {{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15}};
constexpr Unit binary_bytes[] = {{"B", 1}, {"KiB", kibi}, {"MiB", mebi}, {"GiB", gibi}, {"TiB", tebi}};
constexpr Unit decimal_byte_rates[] = {{"B/s", 1}, {"kB/s", 1e3}, {"MB/s", 1e6}, {"GB/s", 1e9}, {"TB/s", 1e12}};
constexpr Unit other_byte_rates[] = {{"KiB/s", kibi},     {"MiB/s", mebi},     {"GiB/s", gibi},
                                     {"b/s", bit},        {"kb/s", bit * 1e3}, {"Mb/s", bit * 1e6},
                                     {"Gb/s", bit * 1e9}, {"Tb/s", bit * 1e12}};
constexpr Unit flop_units[] = {{"FLOP", 1},     {"kFLOP", 1e3},  {"MFLOP", 1e6},  {"GFLOP", 1e9},
                               {"TFLOP", 1e12}, {"PFLOP", 1e15}, {"EFLOP", 1e18}, {"ZFLOP", 1e21}};
constexpr Unit flop_rates[] = {{"FLOP/s", 1},     {"kFLOP/s", 1e3},  {"MFLOP/s", 1e6}, {"GFLOP/s", 1e9},
                               {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}, {"EFLOP/s", 1e18}};
constexpr Unit printed_times[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
constexpr Unit other_times[] = {{"min", 60}, {"h", 3600}, {"µs", 1e-6}};

// What a quantity is printed in, ascending, and what it may be read in besides.
struct Units {
  std::span<Unit const> printed;
  std::span<Unit const> others;
};

Units units_of(Bytes) { return {decimal_bytes, std::span(binary_bytes).subspan(1)}; }
Units units_of(BytesPerSecond) { return {decimal_byte_rates, other_byte_rates}; }
Units units_of(Flops) { return {flop_units, {}}; }
Units units_of(FlopsPerSecond) { return {flop_rates, {}}; }
Units units_of(Seconds) { return {printed_times, other_times}; }

std::string names(Units const& units) {
  std::string list;
  for (auto part : {units.printed, units.others})
    for (Unit const& unit : part)
      list += fmt::format("{}{}", list.empty() ? "" : ", ", unit.name);
  return list;
}

Unit const* find(Units const& units, std::string_view name) {
  for (auto part : {units.printed, units.others})
    for (Unit const& unit : part)
      if (unit.name == name)
        return &unit;
  return nullptr;
}

double parse(Units const& units, std::string_view text) {
  auto fail = [&](std::string_view rule) {
    throw std::invalid_argument(fmt::format("{}; valid units: {}", rule, names(units)));
  };
  double number = 0;
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range)
    fail("the number is out of range");
  if (error != std::errc())
    fail("must be a number and a unit");
  if (!std::isfinite(number) || number < 0)
    fail("must be finite and not negative");

  std::string_view name = text.substr(static_cast<std::size_t>(rest - text.data()));
  while (!name.empty() && name.front() == ' ')
    name.remove_prefix(1);
  Unit const* unit = find(units, name);
  if (unit == nullptr)
    fail(name.empty() ? "has no unit" : fmt::format("has the unknown unit \"{}\"", name));
  double value = number * unit->size;
  if (!std::isfinite(value))
    fail("the number is out of range");
  return value;
}

// Three significant digits without an exponent.
std::string digits(double number) {
  double magnitude = std::abs(number);
  int decimals = magnitude < 9.995 ? 2 : magnitude < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}", number, decimals);
}

std::string print(std::span<Unit const> units, double value) {
  if (value == 0)
    return fmt::format("0 {}", units.back().size == 1 ? units.back().name : units.front().name);
  std::size_t best = 0;
  while (best + 1 < units.size() && std::abs(value) >= 0.9995 * units[best + 1].size)
    ++best;
  double number = value / units[best].size;
  if (std::abs(number) < 0.9995) // below the smallest unit
    return fmt::format("{:.3g} {}", number, units[best].name);
  return fmt::format("{} {}", digits(number), units[best].name);
}

} // namespace

template <class Q>
Q parse_quantity(std::string_view text) {
  return Q(parse(units_of(Q()), text));
}
template <class Q>
std::string valid_units() {
  return names(units_of(Q()));
}

template Bytes parse_quantity<Bytes>(std::string_view);
template Flops parse_quantity<Flops>(std::string_view);
template Seconds parse_quantity<Seconds>(std::string_view);
template BytesPerSecond parse_quantity<BytesPerSecond>(std::string_view);
template FlopsPerSecond parse_quantity<FlopsPerSecond>(std::string_view);
template std::string valid_units<Bytes>();
template std::string valid_units<Flops>();
template std::string valid_units<Seconds>();
template std::string valid_units<BytesPerSecond>();
template std::string valid_units<FlopsPerSecond>();

std::string to_string(Bytes bytes) { return print(decimal_bytes, bytes.value()); }
std::string to_string(Flops flops) { return print(flop_units, flops.value()); }
std::string to_string(Seconds seconds) { return print(printed_times, seconds.value()); }
std::string to_string(BytesPerSecond rate) { return print(decimal_byte_rates, rate.value()); }
std::string to_string(FlopsPerSecond rate) { return print(flop_rates, rate.value()); }
std::string to_binary_string(Bytes bytes) { return print(binary_bytes, bytes.value()); }

} // namespace foreplan

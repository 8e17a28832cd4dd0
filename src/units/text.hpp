// Quantities as text, both ways: "450 GB/s", "80 GiB", "2.5 us".
#pragma once

#include "units/quantity.hpp"

#include <string>
#include <string_view>

namespace foreplan {

// Reads a number and a unit. Throws std::invalid_argument, with what is wrong and which units are valid, for an unknown
// unit, a missing one, and for numbers that are negative, infinite, not a number or out of range.
// Instantiated for Bytes, Flops, Seconds, BytesPerSecond and FlopsPerSecond. Rates of links may be given in bits ("Gb/s").
template <class Q>
Q parse_quantity(std::string_view text);

// The valid units of a quantity, "B, kB, MB, ...", for errors and help.
template <class Q>
std::string valid_units();

// With the decimal prefix that leaves 1 to 3 digits before the point, and 3 significant digits: "71.4 GB", "12.3 ms".
std::string to_string(Bytes bytes);
std::string to_string(Flops flops);
std::string to_string(Seconds seconds);
std::string to_string(BytesPerSecond rate);
std::string to_string(FlopsPerSecond rate);

// The same with the binary prefixes of memory: "74.5 GiB".
std::string to_binary_string(Bytes bytes);

} // namespace foreplan

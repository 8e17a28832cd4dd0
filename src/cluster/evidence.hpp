#pragma once

#include <cstdint>
#include <string>

namespace foreplan {

// What a number of a profile, or a duration, rests on, best last: a data sheet's figure (or a documented default), a
// fit to measurements, a measurement of this very thing.
enum class Evidence : std::uint8_t { datasheet, fitted, measured };

// Where one number of a profile comes from.
struct Source {
  std::string key; // "chip.memory_bandwidth"
  Evidence kind = Evidence::datasheet;
  std::string source;     // a document, a measurement, a reason
  std::string value = {}; // as it stands in the file
};

} // namespace foreplan

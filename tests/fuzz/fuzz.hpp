// libFuzzer calls this with bytes of its choice. A target reads them as its kind of file: an InputError is a good answer,
// anything else that is thrown, and whatever the sanitizers see, is a finding.
#pragma once

#include "io/json_reader.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

namespace foreplan {

// Reads the bytes and does with the result what the commands do; the error must be one line.
template <class Use>
int fuzz(std::uint8_t const* data, std::size_t size, Use use) {
  try {
    use(JsonReader::read_text({reinterpret_cast<char const*>(data), size}, "input.json"));
  } catch (InputError const& error) {
    if (std::strpbrk(error.what(), "\n\r") != nullptr)
      std::abort();
  }
  return 0;
}

} // namespace foreplan

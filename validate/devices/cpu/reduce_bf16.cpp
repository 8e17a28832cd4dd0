#include "validate/devices/cpu/reduce_bf16.hpp"

#include "validate/devices/cpu/values.hpp"

#include <algorithm>
#include <array>

namespace foreplan::cpu {

void reduce_bf16(std::uint16_t const* a, std::uint16_t* b, std::int64_t count, bool maximum) {
  std::array<float, run_length> x, y;
  for (std::int64_t at = 0; at < count; at += run_length) {
    std::int64_t const run = std::min(run_length, count - at);
    to_floats(a + at, DType::bf16, run, x.data());
    to_floats(b + at, DType::bf16, run, y.data());
    if (maximum)
      for (std::size_t i = 0; i < static_cast<std::size_t>(run); ++i)
        y[i] = x[i] > y[i] ? x[i] : y[i];
    else
      for (std::size_t i = 0; i < static_cast<std::size_t>(run); ++i)
        y[i] += x[i];
    from_floats(y.data(), DType::bf16, run, b + at);
  }
}

} // namespace foreplan::cpu

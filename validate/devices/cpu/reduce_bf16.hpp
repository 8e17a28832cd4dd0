#pragma once

#include <cstdint>

namespace foreplan::cpu {

// b[i] = a[i] + b[i], or the larger of both; each rounded to bf16.
void reduce_bf16(std::uint16_t const* a, std::uint16_t* b, std::int64_t count, bool maximum);

} // namespace foreplan::cpu

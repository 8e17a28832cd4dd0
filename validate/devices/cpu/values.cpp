#include "validate/devices/cpu/values.hpp"

#include "validate/devices/element.hpp"

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

namespace foreplan::cpu {
namespace {

// Asks for the memory that a kernel's next run of elements will touch, while it computes on this one.
template <int writes>
void prefetch_next(void const* begin, std::int64_t bytes) {
  constexpr std::int64_t line = 64;
  for (std::int64_t at = 0; at < bytes; at += line)
    __builtin_prefetch(static_cast<char const*>(begin) + bytes + at, writes);
}

// to_bf16() without a branch: both cases are computed, so that the loop becomes a SIMD loop.
std::uint16_t rounded_to_bf16(float value) {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  std::uint32_t const rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  std::uint32_t const quiet_nan = (bits >> 16) | 0x40U;
  return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded);
}

void to_bf16_values(float const* from, std::int64_t count, std::uint16_t* to) {
  prefetch_next<1>(to, 2 * count);
  std::int64_t i = 0;
#ifdef __AVX512BF16__
  for (; i + 16 <= count; i += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                        std::bit_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_loadu_ps(from + i))));
#endif
  for (; i < count; ++i)
    to[i] = rounded_to_bf16(from[i]);
}

[[noreturn]] void refuse(DType dtype) {
  throw std::runtime_error("the CPU kernels compute on bf16 and fp32, not " + std::string(to_string(dtype)));
}

} // namespace

void to_floats(void const* from, DType dtype, std::int64_t count, float* to) {
  auto const* halves = static_cast<std::uint16_t const*>(from);
  switch (dtype) {
    case DType::bf16:
      prefetch_next<0>(from, 2 * count);
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = from_bf16(halves[i]);
      return;
    case DType::fp32: std::copy_n(static_cast<float const*>(from), count, to); return;
    case DType::uint8: std::copy_n(static_cast<std::uint8_t const*>(from), count, to); return;
    case DType::int32: // token ids
    case DType::fp16: refuse(dtype);
  }
}

void from_floats(float const* from, DType dtype, std::int64_t count, void* to) {
  auto* halves = static_cast<std::uint16_t*>(to);
  switch (dtype) {
    case DType::bf16: return to_bf16_values(from, count, halves);
    case DType::fp32: std::copy_n(from, count, static_cast<float*>(to)); return;
    case DType::uint8:
      for (std::int64_t i = 0; i < count; ++i)
        static_cast<std::uint8_t*>(to)[i] = static_cast<std::uint8_t>(from[i]);
      return;
    case DType::int32: // token ids
    case DType::fp16: refuse(dtype);
  }
}

std::int64_t first_of_shard(Operand const& operand, int dimension, Coordinate const& coordinate) {
  AxisPlacement const placement = operand.tensor->placement[Axis::tp];
  bool const cut = placement.kind == AxisPlacement::Kind::sharded && placement.dimension == dimension;
  return cut ? coordinate.tp * operand.tensor->shape[static_cast<std::size_t>(dimension)] : 0;
}

void refuse(Op const& op, std::string const& what) { throw std::runtime_error("op '" + op.name + "': " + what); }

} // namespace foreplan::cpu

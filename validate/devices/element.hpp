// The 16-bit floating types in memory, and what an element of a run's storage is.
#pragma once

#include "plan/plan.hpp"

#include <bit>
#include <cmath>
#include <cstdint>

namespace foreplan {

// Rounds to nearest, ties to even; NaN stays NaN.
inline std::uint16_t to_bf16(float value) {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U)
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}
inline float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

// IEEE 754 binary16: sign, 5 bits of exponent with bias 15, 10 of fraction.
inline std::uint16_t to_fp16(float value) {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  auto const sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  if (std::isnan(value))
    return sign | 0x7e00U;
  float const size = std::abs(value);
  if (size >= 65520.0F) // halfway between the largest number and the next power of two
    return sign | 0x7c00U;
  if (size < 0x1p-14F) // subnormal: whole multiples of 2^-24; adding 0.5 leaves just these bits, rounded
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(size + 0.5F) - 0x3f000000U));
  std::uint32_t const magnitude = (bits & 0x7fffffffU) - (112U << 23); // bias 127 to 15
  return static_cast<std::uint16_t>(sign | ((magnitude + 0xfffU + ((magnitude >> 13) & 1U)) >> 13));
}
inline float from_fp16(std::uint16_t bits) {
  std::uint32_t const sign = (bits & 0x8000U) << 16;
  std::uint32_t const exponent = (bits >> 10) & 0x1fU, fraction = bits & 0x3ffU;
  if (exponent == 0)
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24F) | sign);
  std::uint32_t const wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

// What a run stores tensors in: the dtypes of the program, or, to compare plans without the rounding that they choose, one
// type for everything (token ids and masks too, as the interpreter does).
enum class Storage : std::uint8_t { as_planned, fp32, fp64 };

enum class ElementType : std::uint8_t { bf16, fp16, fp32, int32, uint8, fp64 };

constexpr ElementType element_type(Storage storage, DType dtype) {
  return storage == Storage::as_planned ? static_cast<ElementType>(dtype)
         : storage == Storage::fp32     ? ElementType::fp32
                                        : ElementType::fp64;
}
static_assert(static_cast<int>(DType::uint8) == static_cast<int>(ElementType::uint8));

constexpr std::int64_t size_of(ElementType type) {
  switch (type) {
    case ElementType::uint8: return 1;
    case ElementType::bf16:
    case ElementType::fp16: return 2;
    case ElementType::fp32:
    case ElementType::int32: return 4;
    case ElementType::fp64: return 8;
  }
  return 0;
}

// Element `index` of an array as a number, and back (rounded to what the type holds).
inline double load(void const* data, ElementType type, std::int64_t index) {
  switch (type) {
    case ElementType::bf16: return from_bf16(static_cast<std::uint16_t const*>(data)[index]);
    case ElementType::fp16: return from_fp16(static_cast<std::uint16_t const*>(data)[index]);
    case ElementType::fp32: return static_cast<float const*>(data)[index];
    case ElementType::int32: return static_cast<std::int32_t const*>(data)[index];
    case ElementType::uint8: return static_cast<std::uint8_t const*>(data)[index];
    case ElementType::fp64: return static_cast<double const*>(data)[index];
  }
  return 0;
}
inline void store(void* data, ElementType type, std::int64_t index, double value) {
  switch (type) {
    case ElementType::bf16: static_cast<std::uint16_t*>(data)[index] = to_bf16(static_cast<float>(value)); return;
    case ElementType::fp16: static_cast<std::uint16_t*>(data)[index] = to_fp16(static_cast<float>(value)); return;
    case ElementType::fp32: static_cast<float*>(data)[index] = static_cast<float>(value); return;
    case ElementType::int32: static_cast<std::int32_t*>(data)[index] = static_cast<std::int32_t>(value); return;
    case ElementType::uint8: static_cast<std::uint8_t*>(data)[index] = static_cast<std::uint8_t>(value); return;
    case ElementType::fp64: static_cast<double*>(data)[index] = value; return;
  }
}

} // namespace foreplan

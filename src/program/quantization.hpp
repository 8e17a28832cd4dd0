// Block quantization: how groups of consecutive elements become 8 or 4 bits with one fp32 scale each, bit by bit. Plain
// functions of numbers, shared by the interpreter and the kernels of every device.
//   codes: elements in order; of int4 two a byte, the even one in the low half
//   scales: fp32, one a group; the last group may be short
//   x is about scale * code; scale = largest |x| of the group / largest code, 0 for a group of zeros
#pragma once

#include <bit>
#include <cstdint>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define FOREPLAN_ANY_DEVICE __host__ __device__
#else
#define FOREPLAN_ANY_DEVICE
#endif

namespace foreplan {

// fp8_e4m3: 4 bits of exponent with bias 7, 3 of fraction, no infinity, 0x7f is NaN (OCP 8-bit floating point 1.0).
enum class QuantizedFormat : std::uint8_t { int8, int4, fp8_e4m3 };

struct QuantizedLayout {
  QuantizedFormat format = QuantizedFormat::int8;
  std::int64_t elements = 0;
  std::int64_t group = 128; // elements of one scale; even
};

FOREPLAN_ANY_DEVICE constexpr std::int64_t group_count(QuantizedLayout const& layout) {
  return (layout.elements + layout.group - 1) / layout.group;
}
// Of `elements` from an even one on.
FOREPLAN_ANY_DEVICE constexpr std::int64_t payload_bytes(QuantizedFormat format, std::int64_t elements) {
  return format == QuantizedFormat::int4 ? (elements + 1) / 2 : elements;
}
FOREPLAN_ANY_DEVICE constexpr std::int64_t payload_bytes(QuantizedLayout const& layout) {
  return payload_bytes(layout.format, layout.elements);
}

// How programs cut a block into groups: as few as hold no more elements than DeepSpeed aims at (CUDAQuantizer of
// runtime/zero/partition_parameters.py: target_group_size), all of one even size but the last. From their number the size
// follows.
inline constexpr std::int64_t largest_group = 8000;
FOREPLAN_ANY_DEVICE constexpr std::int64_t groups_of(std::int64_t elements) {
  return (elements + largest_group - 1) / largest_group;
}
FOREPLAN_ANY_DEVICE constexpr std::int64_t group_size(std::int64_t elements, std::int64_t groups) {
  return (elements + 2 * groups - 1) / (2 * groups) * 2;
}

FOREPLAN_ANY_DEVICE constexpr float largest_code(QuantizedFormat format) {
  return format == QuantizedFormat::int8 ? 127.0F : format == QuantizedFormat::int4 ? 7.0F : 448.0F;
}
template <class Real>
FOREPLAN_ANY_DEVICE constexpr Real scale_of(QuantizedFormat format, Real largest) {
  return largest / static_cast<Real>(largest_code(format));
}
// What elements are multiplied by before they are rounded.
template <class Real>
FOREPLAN_ANY_DEVICE constexpr Real inverse_scale(Real scale) {
  return scale > 0 ? 1 / scale : Real(0);
}

// To the nearest whole number, ties to even; |x| <= 2^22.
FOREPLAN_ANY_DEVICE constexpr std::int32_t to_whole(float x) {
  constexpr float shift = 0x1.8p23F; // the last bits of the sum are the number
  return std::bit_cast<std::int32_t>(x + shift) - std::bit_cast<std::int32_t>(shift);
}
FOREPLAN_ANY_DEVICE constexpr std::int32_t to_whole(double x) {
  constexpr double shift = 0x1.8p52;
  return static_cast<std::int32_t>(std::bit_cast<std::int64_t>(x + shift) - std::bit_cast<std::int64_t>(shift));
}

FOREPLAN_ANY_DEVICE constexpr std::uint8_t pack_int4(std::int32_t even, std::int32_t odd) {
  return static_cast<std::uint8_t>((even & 0xf) | ((odd & 0xf) << 4));
}
FOREPLAN_ANY_DEVICE constexpr std::int32_t low_int4(std::uint8_t pair) { return ((pair & 0xf) ^ 8) - 8; }
FOREPLAN_ANY_DEVICE constexpr std::int32_t high_int4(std::uint8_t pair) { return ((pair >> 4) ^ 8) - 8; }

// To the nearest, ties to even; beyond 448 to 448. Codes of one power of two are its multiples of 1/8 (below 2^-6: of
// 2^-9), so the sum with 3 * 2^19 times the power ends in the code's last bits, rounded.
FOREPLAN_ANY_DEVICE constexpr std::uint8_t to_e4m3(float x) {
  auto const bits = std::bit_cast<std::uint32_t>(x);
  float const magnitude = std::bit_cast<float>(bits & 0x7fffffffU);
  float const size = 448.0F < magnitude ? 448.0F : magnitude; // NaN stays
  constexpr std::uint32_t least_power = 121U << 23;           // 2^-6
  std::uint32_t const exponent = std::bit_cast<std::uint32_t>(size) & 0x7f800000U;
  std::uint32_t const power = exponent < least_power ? least_power : exponent;
  std::uint32_t const shift = power + (20U << 23) + (1U << 22);
  std::uint32_t const eighths = std::bit_cast<std::uint32_t>(size + std::bit_cast<float>(shift)) - shift;
  std::uint32_t const code = eighths + ((power - least_power) >> 20);
  return static_cast<std::uint8_t>((code < 0x7fU ? code : 0x7fU) | ((bits >> 24) & 0x80U)); // NaN's is beyond all
}
FOREPLAN_ANY_DEVICE constexpr float from_e4m3(std::uint8_t code) {
  std::uint32_t const size = code & 0x7fU;
  std::uint32_t const sign = static_cast<std::uint32_t>(code & 0x80U) << 24;
  float const normal = std::bit_cast<float>((size << 20) + (120U << 23));
  float const subnormal = static_cast<float>(static_cast<std::int32_t>(size)) * 0x1p-9F;
  float const value = size < 8 ? subnormal : normal;
  auto const quiet_nan = 0x7fc00000U;
  return std::bit_cast<float>((size == 0x7fU ? quiet_nan : std::bit_cast<std::uint32_t>(value)) | sign);
}

} // namespace foreplan

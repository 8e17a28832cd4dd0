#include "validate/devices/cpu/quantize.hpp"

#include "validate/devices/cpu/runs.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace foreplan::cpu {
namespace {

float largest_of(float const* x, std::int64_t count) {
  float largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::abs(x[i]));
  return largest;
}

void encode(float const* x, std::int64_t count, QuantizedFormat format, float inverse, std::uint8_t* to) {
  switch (format) {
    case QuantizedFormat::int8:
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = static_cast<std::uint8_t>(to_whole(x[i] * inverse));
      return;
    case QuantizedFormat::fp8_e4m3:
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = to_e4m3(x[i] * inverse);
      return;
    case QuantizedFormat::int4:
#pragma omp simd
      for (std::int64_t i = 0; i < count / 2; ++i)
        to[i] = pack_int4(to_whole(x[2 * i] * inverse), to_whole(x[2 * i + 1] * inverse));
      if (count % 2 == 1)
        to[count / 2] = pack_int4(to_whole(x[count - 1] * inverse), 0);
      return;
  }
}

void decode(std::uint8_t const* codes, std::int64_t count, QuantizedFormat format, float scale, float* to) {
  switch (format) {
    case QuantizedFormat::int8:
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale;
      return;
    case QuantizedFormat::fp8_e4m3:
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = from_e4m3(codes[i]) * scale;
      return;
    case QuantizedFormat::int4:
#pragma omp simd
      for (std::int64_t i = 0; i < count / 2; ++i) {
        to[2 * i] = static_cast<float>(low_int4(codes[i])) * scale;
        to[2 * i + 1] = static_cast<float>(high_int4(codes[i])) * scale;
      }
      if (count % 2 == 1)
        to[count - 1] = static_cast<float>(low_int4(codes[count / 2])) * scale;
      return;
  }
}

// Calls body(group, first element, elements, scratch of a group's size).
template <class Body>
void for_each_group(QuantizedLayout const& layout, Body const& body) {
  std::int64_t const grain = std::max<std::int64_t>(1, run_length / layout.group); // groups
  parallel_ranges(group_count(layout), grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> scratch(static_cast<std::size_t>(layout.group));
    for (std::int64_t group = begin; group < end; ++group) {
      std::int64_t const first = group * layout.group;
      body(group, first, std::min(layout.group, layout.elements - first), scratch.data());
    }
  });
}

template <class Byte>
Byte* at(Byte* data, std::int64_t element, DType dtype) {
  return data + element * size_of(dtype);
}

} // namespace

void quantize(void const* from, DType dtype, QuantizedLayout const& layout, std::byte* packed) {
  auto* scales = reinterpret_cast<float*>(packed + scales_offset(layout));
  for_each_group(layout, [&](std::int64_t group, std::int64_t first, std::int64_t count, float* scratch) {
    auto const* source = at(static_cast<char const*>(from), first, dtype);
    float const* x = reinterpret_cast<float const*>(source);
    if (dtype != DType::fp32) {
      to_floats(source, dtype, count, scratch);
      x = scratch;
    }
    float const scale = scale_of(layout.format, largest_of(x, count));
    scales[group] = scale;
    encode(x, count, layout.format, inverse_scale(scale),
           reinterpret_cast<std::uint8_t*>(packed) + payload_bytes(layout.format, first));
  });
}

void dequantize(std::byte const* packed, QuantizedLayout const& layout, void* to, DType dtype) {
  auto const* scales = reinterpret_cast<float const*>(packed + scales_offset(layout));
  for_each_group(layout, [&](std::int64_t group, std::int64_t first, std::int64_t count, float* scratch) {
    auto* destination = at(static_cast<char*>(to), first, dtype);
    float* values = dtype == DType::fp32 ? reinterpret_cast<float*>(destination) : scratch;
    decode(reinterpret_cast<std::uint8_t const*>(packed) + payload_bytes(layout.format, first), count, layout.format,
           scales[group], values);
    if (dtype != DType::fp32)
      from_floats(values, dtype, count, destination);
  });
}

} // namespace foreplan::cpu

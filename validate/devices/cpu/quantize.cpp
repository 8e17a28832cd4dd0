#include "validate/devices/cpu/quantize.hpp"

#include "validate/devices/cpu/runs.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
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

void quantize(void const* from, DType dtype, QuantizedLayout const& layout, CodesAndScales<std::uint8_t, float> to) {
  for_each_group(layout, [&](std::int64_t group, std::int64_t first, std::int64_t count, float* scratch) {
    auto const* source = at(static_cast<char const*>(from), first, dtype);
    float const* x = reinterpret_cast<float const*>(source);
    if (dtype != DType::fp32) {
      to_floats(source, dtype, count, scratch);
      x = scratch;
    }
    float const scale = scale_of(layout.format, largest_of(x, count));
    to.scales[group] = scale;
    encode(x, count, layout.format, inverse_scale(scale), to.codes + payload_bytes(layout.format, first));
  });
}

void dequantize(CodesAndScales<std::uint8_t const, float const> from, QuantizedLayout const& layout, void* to,
                DType dtype) {
  for_each_group(layout, [&](std::int64_t group, std::int64_t first, std::int64_t count, float* scratch) {
    auto* destination = at(static_cast<char*>(to), first, dtype);
    float* values = dtype == DType::fp32 ? reinterpret_cast<float*>(destination) : scratch;
    decode(from.codes + payload_bytes(layout.format, first), count, layout.format, from.scales[group], values);
    if (dtype != DType::fp32)
      from_floats(values, dtype, count, destination);
  });
}

namespace {

QuantizedFormat format_of(Op const& op) { return op.bits == 4 ? QuantizedFormat::int4 : QuantizedFormat::int8; }

// One of the `op.blocks` equal blocks of codes.
QuantizedLayout block_layout(Op const& op, Operand const& codes, Operand const& scales) {
  std::int64_t const elements = size(codes) * 8 / op.bits / op.blocks;
  return {format_of(op), elements, group_size(elements, size(scales) / op.blocks)};
}

// Where block `b` of the codes begins, and its scales.
template <class Byte, class Scale>
CodesAndScales<Byte, Scale> block_at(Op const& op, Operand const& codes, Operand const& scales, std::int64_t b) {
  return {static_cast<Byte*>(codes.data) + size(codes) / op.blocks * b,
          static_cast<Scale*>(scales.data) + size(scales) / op.blocks * b};
}

// The sum of a block's terms, block `b` of each of `terms`.
void add_up(Op const& op, Operands codes, std::int64_t terms, std::int64_t b, std::vector<float>& sum) {
  QuantizedLayout const layout = block_layout(op, codes[0], codes[1]);
  std::int64_t const blocks = op.blocks / terms;
  std::vector<float> term(static_cast<std::size_t>(layout.elements));
  sum.assign(term.size(), 0);
  for (std::int64_t t = 0; t < terms; ++t) {
    dequantize(block_at<std::uint8_t const, float const>(op, codes[0], codes[1], t * blocks + b), layout, term.data(),
               DType::fp32);
    std::transform(sum.begin(), sum.end(), term.begin(), sum.begin(), std::plus<>());
  }
}

} // namespace

void quantize(Op const& op, Operands reads, Operands writes) {
  QuantizedLayout const layout = block_layout(op, writes[0], writes[1]);
  std::int64_t const columns = op.blocks / op.swizzle;
  for (std::int64_t b = 0; b < op.blocks; ++b) {
    std::int64_t const from = b % op.swizzle * columns + b / op.swizzle;
    quantize(address(reads[0], from * layout.elements), dtype(reads[0]), layout,
             block_at<std::uint8_t, float>(op, writes[0], writes[1], b));
  }
}

void dequantize(Op const& op, Operands reads, Operands writes) {
  QuantizedLayout const layout = block_layout(op, reads[0], reads[1]);
  std::int64_t const terms = layout.elements * op.blocks / size(writes[0]);
  std::vector<float> sum;
  for (std::int64_t b = 0; b < op.blocks / terms; ++b) {
    if (terms == 1) {
      dequantize(block_at<std::uint8_t const, float const>(op, reads[0], reads[1], b), layout,
                 address(writes[0], b * layout.elements), dtype(writes[0]));
      continue;
    }
    add_up(op, reads, terms, b, sum);
    from_floats(sum.data(), dtype(writes[0]), layout.elements, address(writes[0], b * layout.elements));
  }
}

void requantize(Op const& op, Operands reads, Operands writes) {
  QuantizedLayout const layout = block_layout(op, reads[0], reads[1]);
  std::int64_t const terms = size(reads[0]) / size(writes[0]);
  std::vector<float> sum;
  Op result = op;
  result.blocks = static_cast<int>(op.blocks / terms);
  for (std::int64_t b = 0; b < result.blocks; ++b) {
    add_up(op, reads, terms, b, sum);
    quantize(sum.data(), DType::fp32, layout, block_at<std::uint8_t, float>(result, writes[0], writes[1], b));
  }
}

} // namespace foreplan::cpu

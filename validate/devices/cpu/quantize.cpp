#include "validate/devices/cpu/quantize.hpp"

#include "validate/devices/cpu/runs.hpp"
#include "validate/devices/element.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace foreplan::cpu {
namespace {

void prefetch(char const* begin, std::int64_t bytes) {
  for (std::int64_t line = 0; line < bytes; line += 64)
    __builtin_prefetch(begin + line);
}

float largest_of(float const* x, std::int64_t count) {
  float largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::abs(x[i]));
  return largest;
}

// Groups one after the other: the last may be short. Loops over all groups of a run, so that what a code's arithmetic
// needs is loaded once. inverses: one a group.
template <class Code>
void for_each_value(std::int64_t count, std::int64_t group, float const* inverses, Code const& code) {
  for (std::int64_t first = 0; first < count; first += group, ++inverses) {
    float const inverse = *inverses;
    std::int64_t const end = std::min(first + group, count);
#pragma omp simd
    for (std::int64_t i = first; i < end; ++i)
      code(i, inverse);
  }
}

// bf16 as fp32, and the largest of it.
float widen(std::uint16_t const* x, std::int64_t count, float* to) {
  float largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = from_bf16(x[i]);
    largest = std::max(largest, std::abs(to[i]));
  }
  return largest;
}

void encode(float const* x, std::int64_t count, QuantizedLayout const& layout, float const* inverses,
            std::uint8_t* to) {
  switch (layout.format) {
    case QuantizedFormat::int8:
      return for_each_value(count, layout.group, inverses, [=](std::int64_t i, float inverse) {
        to[i] = static_cast<std::uint8_t>(to_whole(x[i] * inverse));
      });
    case QuantizedFormat::fp8_e4m3:
      return for_each_value(count, layout.group, inverses,
                            [=](std::int64_t i, float inverse) { to[i] = to_e4m3(x[i] * inverse); });
    case QuantizedFormat::int4:
      for_each_value(count / 2, layout.group / 2, inverses, [=](std::int64_t i, float inverse) {
        to[i] = pack_int4(to_whole(x[2 * i] * inverse), to_whole(x[2 * i + 1] * inverse));
      });
      if (count % 2 == 1)
        to[count / 2] = pack_int4(to_whole(x[count - 1] * inverses[(count - 1) / layout.group]), 0);
      return;
  }
}

void decode(std::uint8_t const* codes, std::int64_t count, QuantizedLayout const& layout, float const* scales,
            float* to) {
  switch (layout.format) {
    case QuantizedFormat::int8:
      return for_each_value(count, layout.group, scales, [=](std::int64_t i, float scale) {
        to[i] = static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale;
      });
    case QuantizedFormat::fp8_e4m3:
      return for_each_value(count, layout.group, scales,
                            [=](std::int64_t i, float scale) { to[i] = from_e4m3(codes[i]) * scale; });
    case QuantizedFormat::int4:
      for_each_value(count / 2, layout.group / 2, scales, [=](std::int64_t i, float scale) {
        to[2 * i] = static_cast<float>(low_int4(codes[i])) * scale;
        to[2 * i + 1] = static_cast<float>(high_int4(codes[i])) * scale;
      });
      if (count % 2 == 1)
        to[count - 1] = static_cast<float>(low_int4(codes[count / 2])) * scales[(count - 1) / layout.group];
      return;
  }
}

// Some groups in a row, with memory for their elements and for a number of each.
struct GroupRun {
  std::int64_t group; // the first one
  std::int64_t groups;
  std::int64_t first; // element
  std::int64_t elements;
  float* values;
  float* numbers;
};

// Calls body(GroupRun) for about run_length elements at a time, on all threads.
template <class Body>
void for_each_group_run(QuantizedLayout const& layout, Body const& body) {
  std::int64_t const grain = std::max<std::int64_t>(1, run_length / layout.group); // groups
  parallel_ranges(group_count(layout), grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> values(static_cast<std::size_t>(grain * layout.group));
    std::vector<float> numbers(static_cast<std::size_t>(grain));
    for (std::int64_t group = begin; group < end; group += grain) {
      std::int64_t const groups = std::min(grain, end - group);
      std::int64_t const first = group * layout.group;
      body(GroupRun{group, groups, first, std::min(groups * layout.group, layout.elements - first), values.data(),
                    numbers.data()});
    }
  });
}

template <class Byte>
Byte* at(Byte* data, std::int64_t element, DType dtype) {
  return data + element * size_of(dtype);
}

} // namespace

void quantize(void const* from, DType dtype, QuantizedLayout const& layout, CodesAndScales<std::uint8_t, float> to) {
  for_each_group_run(layout, [&](GroupRun const& run) {
    auto const* source = at(static_cast<char const*>(from), run.first, dtype);
    prefetch(source + run.elements * size_of(dtype), run.elements * size_of(dtype)); // of the next run
    auto const* wide = reinterpret_cast<float const*>(source);
    auto const* narrow = reinterpret_cast<std::uint16_t const*>(source);
    for (std::int64_t i = 0; i < run.groups; ++i) {
      std::int64_t const begin = i * layout.group, count = std::min(layout.group, run.elements - begin);
      float const largest = dtype == DType::fp32 ? largest_of(wide + begin, count)
                                                 : widen(narrow + begin, count, run.values + begin);
      to.scales[run.group + i] = scale_of(layout.format, largest);
      run.numbers[i] = inverse_scale(to.scales[run.group + i]);
    }
    encode(dtype == DType::fp32 ? wide : run.values, run.elements, layout, run.numbers,
           to.codes + payload_bytes(layout.format, run.first));
  });
}

void dequantize(CodesAndScales<std::uint8_t const, float const> from, QuantizedLayout const& layout, void* to,
                DType dtype) {
  for_each_group_run(layout, [&](GroupRun const& run) {
    auto* destination = at(static_cast<char*>(to), run.first, dtype);
    float* values = dtype == DType::fp32 ? reinterpret_cast<float*>(destination) : run.values;
    decode(from.codes + payload_bytes(layout.format, run.first), run.elements, layout, from.scales + run.group, values);
    if (dtype != DType::fp32)
      from_floats(values, dtype, run.elements, destination);
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

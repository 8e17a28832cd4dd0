#include "interpreter/quantize_kernels.hpp"

#include "program/quantization.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

namespace foreplan {
namespace {

template <class Scalar>
struct Block {
  Scalar* codes;
  Scalar* scales;
  std::int64_t elements;
  std::int64_t groups;
};

void require(Op const& op, bool fits) {
  if (!fits)
    throw std::runtime_error("op '" + op.name + "': sizes of codes do not fit");
}

// One of `blocks` equal blocks of codes.
template <class Scalar>
Block<Scalar> block_at(Op const& op, View<Scalar> codes, View<Scalar> scales, std::int64_t blocks, std::int64_t b) {
  require(op, (op.bits == 4 || op.bits == 8) && blocks > 0 && codes.elements() % blocks == 0 &&
                  scales.elements() % blocks == 0 && scales.elements() > 0);
  std::int64_t const bytes = codes.elements() / blocks, groups = scales.elements() / blocks;
  return {codes.data + bytes * b, scales.data + groups * b, bytes * 8 / op.bits, groups};
}

QuantizedFormat format_of(Op const& op) { return op.bits == 4 ? QuantizedFormat::int4 : QuantizedFormat::int8; }

// Calls body(group, first element, elements).
template <class Scalar, class Body>
void for_each_group(Block<Scalar> const& block, Body const& body) {
  std::int64_t const size = group_size(block.elements, block.groups);
  for (std::int64_t group = 0; group < block.groups; ++group) {
    std::int64_t const first = std::min(block.elements, group * size);
    body(group, first, std::min(size, block.elements - first));
  }
}

template <class Scalar>
Scalar largest_of(Scalar const* x, std::int64_t count) {
  Scalar largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    if (std::isnan(x[i]))
      return x[i];
    else
      largest = std::max(largest, std::abs(x[i]));
  return largest;
}

template <class Scalar>
void encode(Op const& op, Scalar const* x, Block<Scalar> const& to) {
  for_each_group(to, [&](std::int64_t group, std::int64_t first, std::int64_t count) {
    Scalar const scale = scale_of(format_of(op), largest_of(x + first, count));
    Scalar const inverse = inverse_scale(scale); // 0 where the scale is NaN
    to.scales[group] = scale;
    auto const code = [&](std::int64_t i) { return inverse > 0 ? to_whole(x[first + i] * inverse) : 0; };
    if (op.bits == 8)
      for (std::int64_t i = 0; i < count; ++i)
        to.codes[first + i] = static_cast<std::uint8_t>(code(i));
    else
      for (std::int64_t i = 0; i < count; i += 2)
        to.codes[(first + i) / 2] = pack_int4(code(i), i + 1 < count ? code(i + 1) : 0);
  });
}

// Adds what the codes stand for.
template <class Scalar>
void add_decoded(Op const& op, Block<Scalar> const& from, Scalar* y) {
  for_each_group(from, [&](std::int64_t group, std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) {
      Scalar const stored = from.codes[op.bits == 8 ? i : i / 2];
      if (!(stored >= 0 && stored <= 255)) { // never written
        y[i] = std::numeric_limits<Scalar>::quiet_NaN();
        continue;
      }
      auto const byte = static_cast<std::uint8_t>(stored);
      std::int32_t const code = op.bits == 8 ? static_cast<std::int8_t>(byte)
                                : i % 2 == 0 ? low_int4(byte)
                                             : high_int4(byte);
      y[i] += static_cast<Scalar>(code) * from.scales[group];
    }
  });
}

// Block b of y: the sum over `terms` of what block b of each holds.
template <class Scalar>
void decode(Op const& op, View<Scalar> codes, View<Scalar> scales, std::int64_t terms, std::int64_t b, Scalar* y) {
  std::int64_t const blocks = op.blocks / terms;
  for (std::int64_t t = 0; t < terms; ++t) {
    Block<Scalar> const block = block_at(op, codes, scales, op.blocks, t * blocks + b);
    if (t == 0)
      std::fill_n(y, block.elements, Scalar(0));
    add_decoded(op, block, y);
  }
}

} // namespace

template <class Scalar>
void quantize(Op const& op, View<Scalar> x, View<Scalar> codes, View<Scalar> scales) {
  std::int64_t const columns = op.blocks / op.swizzle;
  for (std::int64_t b = 0; b < op.blocks; ++b) {
    Block<Scalar> const block = block_at(op, codes, scales, op.blocks, b);
    require(op, block.elements * op.blocks == x.elements());
    encode(op, x.data + (b % op.swizzle * columns + b / op.swizzle) * block.elements, block);
  }
}

template <class Scalar>
void dequantize(Op const& op, View<Scalar> codes, View<Scalar> scales, View<Scalar> y) {
  std::int64_t const values = codes.elements() * 8 / op.bits;
  require(op, y.elements() > 0 && values % y.elements() == 0 && op.blocks % (values / y.elements()) == 0);
  std::int64_t const terms = values / y.elements();
  for (std::int64_t b = 0; b < op.blocks / terms; ++b)
    decode(op, codes, scales, terms, b, y.data + values / op.blocks * b);
}

template <class Scalar>
void requantize(Op const& op, std::span<View<Scalar> const> reads, std::span<View<Scalar> const> writes) {
  require(op, writes[0].elements() > 0 && reads[0].elements() % writes[0].elements() == 0);
  std::int64_t const terms = reads[0].elements() / writes[0].elements();
  require(op, op.blocks % terms == 0);
  for (std::int64_t b = 0; b < op.blocks / terms; ++b) {
    Block<Scalar> const block = block_at(op, writes[0], writes[1], op.blocks / terms, b);
    std::vector<Scalar> sum(static_cast<std::size_t>(block.elements));
    decode(op, reads[0], reads[1], terms, b, sum.data());
    encode(op, sum.data(), block);
  }
}

template void quantize<float>(Op const&, View<float>, View<float>, View<float>);
template void quantize<double>(Op const&, View<double>, View<double>, View<double>);
template void dequantize<float>(Op const&, View<float>, View<float>, View<float>);
template void dequantize<double>(Op const&, View<double>, View<double>, View<double>);
template void requantize<float>(Op const&, std::span<View<float> const>, std::span<View<float> const>);
template void requantize<double>(Op const&, std::span<View<double> const>, std::span<View<double> const>);

} // namespace foreplan

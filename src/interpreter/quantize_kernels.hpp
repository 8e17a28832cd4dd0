// Block quantization on the interpreter's tensors (program/quantization.hpp): a byte of codes is a whole number.
#pragma once

#include "interpreter/kernels.hpp"

#include <span>

namespace foreplan {

// As op_kinds.md says. A NaN makes its group's scale, and so the whole group, NaN.
template <class Scalar>
void quantize(Op const& op, View<Scalar> x, View<Scalar> codes, View<Scalar> scales);
template <class Scalar>
void dequantize(Op const& op, View<Scalar> codes, View<Scalar> scales, View<Scalar> y);
template <class Scalar>
void requantize(Op const& op, std::span<View<Scalar> const> reads, std::span<View<Scalar> const> writes);

} // namespace foreplan

// Block quantization on the CPU, on all threads of the caller's OpenMP setting.
#pragma once

#include "program/quantization.hpp"
#include "validate/devices/cpu/values.hpp"

#include <cstdint>

namespace foreplan::cpu {

// Codes of payload_bytes(layout), scales of group_count(layout).
template <class Byte, class Scale>
struct CodesAndScales {
  Byte* codes;
  Scale* scales;
};

// `from` and `to`: layout.elements of bf16 or fp32.
void quantize(void const* from, DType dtype, QuantizedLayout const& layout, CodesAndScales<std::uint8_t, float> to);
void dequantize(CodesAndScales<std::uint8_t const, float const> from, QuantizedLayout const& layout, void* to,
                DType dtype);

// The ops of these kinds.
void quantize(Op const& op, Operands reads, Operands writes);
void dequantize(Op const& op, Operands reads, Operands writes);
void requantize(Op const& op, Operands reads, Operands writes);

} // namespace foreplan::cpu

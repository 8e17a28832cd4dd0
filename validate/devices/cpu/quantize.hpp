// Block quantization on the CPU, on all threads of the caller's OpenMP setting. Layout: ../quantize_layout.hpp.
#pragma once

#include "plan/plan.hpp"
#include "validate/devices/quantize_layout.hpp"

#include <cstddef>

namespace foreplan::cpu {

// `from` and `to`: layout.elements of bf16 or fp32; `packed`: packed_bytes(layout), at a multiple of 4 bytes.
void quantize(void const* from, DType dtype, QuantizedLayout const& layout, std::byte* packed);
void dequantize(std::byte const* packed, QuantizedLayout const& layout, void* to, DType dtype);

} // namespace foreplan::cpu

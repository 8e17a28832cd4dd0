// The seam between the runner and a device's kernels. What an op computes: src/program/op_kinds.md.
#pragma once

#include "interpreter/kernels.hpp"
#include "program/program.hpp"

#include <cstdint>
#include <span>

namespace foreplan {

// A tensor of one rank in the device's memory: row-major, contiguous from `data`, elements of tensor->dtype (bf16 and fp16
// as std::uint16_t, see element.hpp). Buffers begin at multiples of 64 bytes; a tensor at an offset into a flat
// buffer may begin at any multiple of its element.
struct Operand {
  void* data = nullptr;
  Tensor const* tensor = nullptr;

  template <class Element>
  [[nodiscard]] Element* as() const {
    return static_cast<Element*>(data);
  }
  [[nodiscard]] std::int64_t elements() const { return tensor->elements(); }
};

inline constexpr std::int64_t buffer_alignment = 64; // bytes: a cache line, and the widest vector register

// Runs one op that is not communication, to its end, on at most `threads` threads: the caller's and others. Operands are
// positional, as in OpKind; a tensor that is read and written stands in both lists with the same address. Called by
// different threads (streams) of a rank at the same time. Throws std::runtime_error where an op cannot be run.
// CPU: validate/devices/cpu/.
void run_kernel(Op const& op, std::span<Operand const> reads, std::span<Operand const> writes,
                KernelContext const& context, int threads);

} // namespace foreplan

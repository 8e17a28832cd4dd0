// Storage of the CPU kernels: bf16, fp32, int32 and uint8 in memory, all arithmetic in fp32. A kernel works on short runs
// of elements: fp32 in place, bf16 converted to and from a piece of the first-level cache.
#pragma once

#include "validate/devices/backend.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace foreplan::cpu {

using Operands = std::span<Operand const>;
// Elements of a run: a few operands of it fit into the first-level cache.
inline constexpr std::int64_t run_length = 1024;

inline std::int64_t size(Operand const& operand) { return operand.tensor->elements(); }
inline std::int64_t rows(Operand const& operand) { return operand.tensor->shape[0]; }
inline std::int64_t columns(Operand const& operand) { return rows(operand) == 0 ? 0 : size(operand) / rows(operand); }
inline DType dtype(Operand const& operand) { return operand.tensor->dtype; }

inline void* address(Operand const& operand, std::int64_t at) {
  return static_cast<char*>(operand.data) + at * size_of(dtype(operand));
}
inline float* fp32(Operand const& operand) { return static_cast<float*>(operand.data); }

void to_floats(void const* from, DType dtype, std::int64_t count, float* to);
void from_floats(float const* from, DType dtype, std::int64_t count, void* to);

// Elements [at, at + count) as fp32: in place where they are stored so, else converted into `scratch`.
inline float const* load(Operand const& operand, std::int64_t at, std::int64_t count, float* scratch) {
  if (dtype(operand) == DType::fp32)
    return fp32(operand) + at;
  to_floats(address(operand, at), dtype(operand), count, scratch);
  return scratch;
}

// Where to put elements [at, ...): in place, or into `scratch`; store() then brings them home.
inline float* target(Operand const& operand, std::int64_t at, float* scratch) {
  return dtype(operand) == DType::fp32 ? fp32(operand) + at : scratch;
}
inline void store(Operand const& operand, std::int64_t at, std::int64_t count, float const* values) {
  if (dtype(operand) != DType::fp32)
    from_floats(values, dtype(operand), count, address(operand, at));
}

// Index of the shard's first element along `dimension`, cut along tp; 0 when that dimension is whole on the rank.
std::int64_t first_of_shard(Operand const& operand, int dimension, Coordinate const& coordinate);

// Throws std::runtime_error that names the op.
[[noreturn]] void refuse(Op const& op, std::string const& what);

} // namespace foreplan::cpu

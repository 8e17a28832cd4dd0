#include "validate/devices/cpu/values.hpp"

#include "validate/devices/element.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace foreplan::cpu {

void to_floats(void const* from, DType dtype, std::int64_t count, float* to) {
  auto const* halves = static_cast<std::uint16_t const*>(from);
  switch (dtype) {
    case DType::bf16:
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = from_bf16(halves[i]);
      return;
    case DType::fp16:
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = from_fp16(halves[i]);
      return;
    case DType::fp32: std::copy_n(static_cast<float const*>(from), count, to); return;
    case DType::uint8: std::copy_n(static_cast<std::uint8_t const*>(from), count, to); return;
    case DType::int32: throw std::runtime_error("token ids are no floating-point numbers");
  }
}

void from_floats(float const* from, DType dtype, std::int64_t count, void* to) {
  auto* halves = static_cast<std::uint16_t*>(to);
  switch (dtype) {
    case DType::bf16:
      for (std::int64_t i = 0; i < count; ++i)
        halves[i] = to_bf16(from[i]);
      return;
    case DType::fp16:
      for (std::int64_t i = 0; i < count; ++i)
        halves[i] = to_fp16(from[i]);
      return;
    case DType::fp32: std::copy_n(from, count, static_cast<float*>(to)); return;
    case DType::uint8:
      for (std::int64_t i = 0; i < count; ++i)
        static_cast<std::uint8_t*>(to)[i] = static_cast<std::uint8_t>(from[i]);
      return;
    case DType::int32: throw std::runtime_error("token ids are no floating-point numbers");
  }
}

std::int64_t first_of_shard(Operand const& operand, int dimension, Coordinate const& coordinate) {
  AxisPlacement const placement = operand.tensor->placement[Axis::tp];
  bool const cut = placement.kind == AxisPlacement::Kind::sharded && placement.dimension == dimension;
  return cut ? coordinate.tp * operand.tensor->shape[static_cast<std::size_t>(dimension)] : 0;
}

void refuse(Op const& op, std::string const& what) { throw std::runtime_error("op '" + op.name + "': " + what); }

} // namespace foreplan::cpu

#include "validate/devices/cpu/kernels.hpp"
#include "validate/devices/cpu/parallel.hpp"

#include <cmath>
#include <vector>

namespace foreplan::cpu {
namespace {

constexpr double base = 10000;

// cos and sin of position * base^(-2i/d), d/2 of each for every position.
struct Angles {
  std::int64_t positions = 0;
  std::int64_t half = 0;
  std::vector<float> cosines, sines;
};

Angles make_angles(std::int64_t positions, std::int64_t half) {
  Angles angles{positions, half, {}, {}};
  for (std::int64_t position = 0; position < positions; ++position)
    for (std::int64_t i = 0; i < half; ++i) {
      double const theta = static_cast<double>(position) *
                           std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
      angles.cosines.push_back(static_cast<float>(std::cos(theta)));
      angles.sines.push_back(static_cast<float>(std::sin(theta)));
    }
  return angles;
}

// Computed once a shape: the functions take longer than the rotation.
Angles const& angles_of(std::int64_t positions, std::int64_t half) {
  thread_local Angles angles;
  if (angles.positions != positions || angles.half != half)
    angles = make_angles(positions, half);
  return angles;
}

} // namespace

// qkv is [T, g, q + 2, d]; the value, last of each group, stays as it is.
void rope(Op const& op, Operands reads, Operands writes, KernelContext const& context, float direction) {
  std::vector<std::int64_t> const& shape = reads[0].tensor->shape;
  std::int64_t const members = shape[2];
  std::int64_t const d = shape[3];
  std::int64_t const half = d / 2;
  std::int64_t const first = first_of_shard(reads[0], 0, context.coordinate);
  Angles const& angles = angles_of(op.sequence_length, half);
  if (writes[0].data != reads[0].data)
    cast(reads[0], writes[0]);
  parallel_ranges(shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> in(static_cast<std::size_t>(d)), out(static_cast<std::size_t>(d));
    for (std::int64_t t = begin; t < end; ++t) {
      std::int64_t const position = (first + t) % op.sequence_length;
      float const* cosine = angles.cosines.data() + position * half;
      float const* sine = angles.sines.data() + position * half;
      for (std::int64_t head = 0; head < shape[1] * members; ++head) {
        if (head % members == members - 1)
          continue;
        std::int64_t const at = (t * shape[1] * members + head) * d;
        float const* x = load(writes[0], at, d, in.data());
        for (std::int64_t i = 0; i < half; ++i) {
          float const s = direction * sine[i];
          out[static_cast<std::size_t>(i)] = x[i] * cosine[i] - x[i + half] * s;
          out[static_cast<std::size_t>(i + half)] = x[i + half] * cosine[i] + x[i] * s;
        }
        from_floats(out.data(), dtype(writes[0]), 2 * half, address(writes[0], at));
      }
    }
  });
}

} // namespace foreplan::cpu

#include "validate/devices/cpu/elementary.hpp"
#include "validate/devices/cpu/kernels.hpp"
#include "validate/devices/cpu/runs.hpp"

#include <cmath>

namespace foreplan::cpu {
namespace {

constexpr auto inverse_root_two = static_cast<float>(M_SQRT1_2);

float normal_distribution(float x) { return 0.5F * (1 + error_function(x * inverse_root_two)); }

// gate and up of token t, run [at, at + count) of its f columns: where they lie in [T, 2, f].
struct GateUp {
  std::int64_t gate, up;
};
GateUp gate_up(std::int64_t t, std::int64_t width, std::int64_t at) {
  return {2 * t * width + at, (2 * t + 1) * width + at};
}

} // namespace

void gelu_forward(Operands reads, Operands writes) {
  map(reads[0], writes[0], [](float x) { return x * normal_distribution(x); });
}

// d/dx = Phi(x) + x exp(-x^2 / 2) / sqrt(2 pi)
void gelu_backward(Operands reads, Operands writes) {
  constexpr auto density_at_0 = static_cast<float>(M_2_SQRTPI * M_SQRT1_2 / 2);
  map(reads[0], reads[1], writes[0],
      [](float x, float dy) { return dy * (normal_distribution(x) + x * density_at_0 * exponential(-x * x / 2)); });
}

void swiglu_forward(Operands reads, Operands writes) {
  Operand const& y = writes[0];
  std::int64_t const width = columns(y);
  parallel_ranges(rows(y), 1, [&](std::int64_t begin, std::int64_t end) {
    std::array<float, run_length> a, b, out;
    for (std::int64_t t = begin; t < end; ++t)
      for (std::int64_t at = 0; at < width; at += run_length) {
        std::int64_t const count = std::min(run_length, width - at);
        GateUp const from = gate_up(t, width, at);
        float const* gate = load(reads[0], from.gate, count, a.data());
        float const* up = load(reads[0], from.up, count, b.data());
        float* to = target(y, t * width + at, out.data());
        for (std::int64_t i = 0; i < count; ++i)
          to[i] = gate[i] * sigmoid(gate[i]) * up[i];
        store(y, t * width + at, count, to);
      }
  });
}

// silu'(x) = sigmoid(x) (1 + x (1 - sigmoid(x)))
void swiglu_backward(Operands reads, Operands writes) {
  Operand const& gradient = reads[1];
  std::int64_t const width = columns(gradient);
  parallel_ranges(rows(gradient), 1, [&](std::int64_t begin, std::int64_t end) {
    std::array<float, run_length> a, b, c, out_gate, out_up;
    for (std::int64_t t = begin; t < end; ++t)
      for (std::int64_t at = 0; at < width; at += run_length) {
        std::int64_t const count = std::min(run_length, width - at);
        GateUp const place = gate_up(t, width, at);
        float const* gate = load(reads[0], place.gate, count, a.data());
        float const* up = load(reads[0], place.up, count, b.data());
        float const* dy = load(gradient, t * width + at, count, c.data());
        float* dgate = target(writes[0], place.gate, out_gate.data());
        float* dup = target(writes[0], place.up, out_up.data());
        for (std::int64_t i = 0; i < count; ++i) {
          float const s = sigmoid(gate[i]);
          float const through_gate = dy[i] * up[i] * s * (1 + gate[i] * (1 - s));
          dup[i] = dy[i] * gate[i] * s;
          dgate[i] = through_gate;
        }
        store(writes[0], place.gate, count, dgate);
        store(writes[0], place.up, count, dup);
      }
  });
}

} // namespace foreplan::cpu

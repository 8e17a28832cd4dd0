#include "validate/devices/cpu/kernels.hpp"
#include "validate/devices/cpu/runs.hpp"

namespace foreplan::cpu {

void add(Operands reads, Operands writes) {
  map(reads[0], reads[1], writes[0], [](float x, float residual) { return x + residual; });
}

// Dropout of rate 0 keeps everything; the mask is all ones.
void bias_add(Operands reads, Operands writes) {
  Operand const& y = writes[0];
  std::int64_t const width = columns(y);
  parallel_ranges(rows(y), 1, [&](std::int64_t begin, std::int64_t end) {
    std::array<float, run_length> a, b, c, out;
    for (std::int64_t at = 0; at < width; at += run_length) {
      std::int64_t const count = std::min(run_length, width - at);
      float const* bias = load(reads[1], at, count, b.data());
      for (std::int64_t t = begin; t < end; ++t) {
        float const* x = load(reads[0], t * width + at, count, a.data());
        float const* residual = load(reads[2], t * width + at, count, c.data());
        float* to = target(y, t * width + at, out.data());
        for (std::int64_t i = 0; i < count; ++i)
          to[i] = x[i] + bias[i] + residual[i];
        store(y, t * width + at, count, to);
      }
    }
  });
  if (writes.size() > 1)
    fill_ones(writes[1]);
}

void dropout_forward(Operands reads, Operands writes) {
  cast(reads[0], writes[0]);
  fill_ones(writes[1]);
}

void dropout_backward(Operands reads, Operands writes) {
  map(reads[0], reads[1], writes[0], [](float dy, float mask) { return dy * mask; });
}

void fill_ones(Operand const& to) {
  for_each_run(size(to), [&](std::int64_t at, std::int64_t count) {
    std::array<float, run_length> out;
    float* ones = target(to, at, out.data());
    std::fill_n(ones, count, 1.0F);
    store(to, at, count, ones);
  });
}

void zero_fill(Operand const& to) {
  for_each_run(size(to), [&](std::int64_t at, std::int64_t count) {
    std::fill_n(static_cast<char*>(address(to, at)), count * size_of(dtype(to)), char{0});
  });
}

void cast(Operand const& from, Operand const& to) {
  for_each_run(size(to), [&](std::int64_t at, std::int64_t count) {
    if (dtype(from) == dtype(to)) {
      std::copy_n(static_cast<char const*>(address(from, at)), count * size_of(dtype(to)),
                  static_cast<char*>(address(to, at)));
      return;
    }
    std::array<float, run_length> values;
    from_floats(load(from, at, count, values.data()), dtype(to), count, address(to, at));
  });
}

} // namespace foreplan::cpu

#include "validate/devices/cpu/kernels.hpp"
#include "validate/devices/cpu/runs.hpp"

#include <cmath>
#include <vector>

namespace foreplan::cpu {
namespace {

constexpr float epsilon = 1e-5F;

// A row of z = (x - mean) / deviation; rms_norm's mean is 0.
struct Statistics {
  float mean = 0;
  float inverse_deviation = 0;
};

Statistics statistics_of(float const* x, std::int64_t width, bool layer_norm) {
  auto const n = static_cast<float>(width);
  float const mean = layer_norm ? sum(width, [x](std::int64_t i) { return x[i]; }) / n : 0;
  float const variance = sum(width, [x, mean](std::int64_t i) { return (x[i] - mean) * (x[i] - mean); }) / n;
  return {mean, 1 / std::sqrt(variance + epsilon)};
}

// Rows of scratch of one thread.
class Rows {
public:
  Rows(std::int64_t count, std::int64_t width) : width_(width), data_(static_cast<std::size_t>(count * width)) {}
  float* operator[](std::int64_t row) { return data_.data() + row * width_; }

private:
  std::int64_t width_;
  std::vector<float> data_;
};

void add_to(Operand const& to, float const* values) {
  std::array<float, run_length> scratch;
  for (std::int64_t at = 0; at < size(to); at += run_length) {
    std::int64_t const count = std::min(run_length, size(to) - at);
    float const* before = load(to, at, count, scratch.data());
    float* after = target(to, at, scratch.data());
    for (std::int64_t i = 0; i < count; ++i)
      after[i] = before[i] + values[at + i];
    store(to, at, count, after);
  }
}

} // namespace

void norm_forward(Operands reads, Operands writes) {
  bool const layer_norm = reads.size() == 3;
  Operand const& x = reads[0];
  std::int64_t const width = columns(x);
  parallel_ranges(rows(x), 1, [&](std::int64_t begin, std::int64_t end) {
    Rows scratch(4, width);
    float const* weight = load(reads[1], 0, width, scratch[0]);
    float const* bias = layer_norm ? load(reads[2], 0, width, scratch[1]) : scratch[1]; // else zeros
    for (std::int64_t t = begin; t < end; ++t) {
      float const* row = load(x, t * width, width, scratch[2]);
      Statistics const s = statistics_of(row, width, layer_norm);
      float* y = target(writes[0], t * width, scratch[3]);
      for (std::int64_t i = 0; i < width; ++i)
        y[i] = (row[i] - s.mean) * s.inverse_deviation * weight[i] + bias[i];
      store(writes[0], t * width, width, y);
    }
  });
}

// With z the normalised x and u = dy . w: dx = (u - mean(u) - z mean(u z)) / deviation; rms_norm has no mean(u).
// Operands: dy, x, weight, [dresidual], rw dweight, [rw dbias] -> dx, dweight, [dbias].
void norm_backward(Operands reads, Operands writes) {
  bool const layer_norm = writes.size() == 3;
  bool const has_residual = reads.size() == 3 + writes.size();
  Operand const& dx = writes[0];
  std::int64_t const width = columns(dx);
  auto const n = static_cast<float>(width);
  parallel_ranges(rows(dx), 1, [&](std::int64_t begin, std::int64_t end) {
    enum : std::int64_t { dy_row, x_row, weight_row, residual_row, dx_row, z_row, dweight_row, dbias_row, row_count };
    Rows scratch(row_count, width);
    float const* weight = load(reads[2], 0, width, scratch[weight_row]);
    float* const z = scratch[z_row];
    float* const dweight = scratch[dweight_row];
    float* const dbias = scratch[dbias_row];
    for (std::int64_t t = begin; t < end; ++t) {
      float const* dy = load(reads[0], t * width, width, scratch[dy_row]);
      float const* x = load(reads[1], t * width, width, scratch[x_row]);
      float const* residual = has_residual ? load(reads[3], t * width, width, scratch[residual_row])
                                           : scratch[residual_row]; // zeros
      Statistics const s = statistics_of(x, width, layer_norm);
      float mean_u = 0;
      float mean_uz = 0;
#pragma omp simd reduction(+ : mean_u, mean_uz)
      for (std::int64_t i = 0; i < width; ++i) {
        z[i] = (x[i] - s.mean) * s.inverse_deviation;
        dweight[i] += dy[i] * z[i];
        dbias[i] += dy[i];
        float const u = dy[i] * weight[i];
        mean_u += u;
        mean_uz += u * z[i];
      }
      mean_u = layer_norm ? mean_u / n : 0;
      mean_uz /= n;
      float* to = target(dx, t * width, scratch[dx_row]);
      for (std::int64_t i = 0; i < width; ++i)
        to[i] = (dy[i] * weight[i] - mean_u - z[i] * mean_uz) * s.inverse_deviation + residual[i];
      store(dx, t * width, width, to);
    }
#pragma omp critical
    {
      add_to(writes[1], dweight);
      if (layer_norm)
        add_to(writes[2], dbias);
    }
  });
}

} // namespace foreplan::cpu

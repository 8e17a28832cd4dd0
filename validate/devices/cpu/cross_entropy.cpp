#include "validate/devices/cpu/elementary.hpp"
#include "validate/devices/cpu/kernels.hpp"
#include "validate/devices/cpu/runs.hpp"

#include <cmath>

namespace foreplan::cpu {

namespace {

// Of `lanes` columns side by side; a NaN among the values makes one of the lane.
constexpr std::int64_t lanes = 64;
using Maxima = std::array<float, lanes>;

void raise(Maxima& maxima, float const* values, std::int64_t count) {
  for (std::int64_t lane = 0; lane < count; ++lane) {
    float& maximum = maxima[static_cast<std::size_t>(lane)];
    maximum = maximum >= values[lane] || maximum != maximum ? maximum : values[lane];
  }
}

} // namespace

void loss_maximum(Operands reads, Operands writes) {
  Operand const& logits = reads[0];
  std::int64_t const width = columns(logits);
  parallel_ranges(rows(logits), 1, [&](std::int64_t begin, std::int64_t end) {
    std::array<float, run_length> scratch;
    for (std::int64_t t = begin; t < end; ++t) {
      Maxima maxima;
      maxima.fill(-INFINITY);
      for (std::int64_t at = 0; at < width; at += run_length) {
        std::int64_t const count = std::min(run_length, width - at);
        float const* values = load(logits, t * width + at, count, scratch.data());
        std::int64_t i = 0;
        for (; i + lanes <= count; i += lanes)
          raise(maxima, values + i, lanes);
        raise(maxima, values + i, count - i);
      }
      Maxima highest{};
      highest[0] = -INFINITY;
      for (float maximum : maxima)
        raise(highest, &maximum, 1);
      fp32(writes[0])[t] = highest[0];
    }
  });
}

void loss_sums(Operands reads, Operands writes, KernelContext const& context) {
  Operand const& logits = reads[0];
  auto const* labels = static_cast<std::int32_t const*>(reads[1].data);
  float const* maximum = fp32(reads[2]);
  std::int64_t const width = columns(logits);
  std::int64_t const first = first_of_shard(logits, 1, context.coordinate);
  parallel_ranges(rows(logits), 1, [&](std::int64_t begin, std::int64_t end) {
    std::array<float, run_length> scratch;
    for (std::int64_t t = begin; t < end; ++t) {
      float const most = maximum[t];
      float total = 0;
      for (std::int64_t at = 0; at < width; at += run_length) {
        std::int64_t const count = std::min(run_length, width - at);
        float const* values = load(logits, t * width + at, count, scratch.data());
        total += sum(count, [values, most](std::int64_t i) { return exponential_of_negative(values[i] - most); });
      }
      std::int64_t const column = labels[t] - first;
      bool const mine = 0 <= column && column < width;
      fp32(writes[0])[2 * t] = mine ? *load(logits, t * width + column, 1, scratch.data()) - most : 0;
      fp32(writes[0])[2 * t + 1] = total;
    }
  });
}

void loss_forward(Op const& op, Operands reads, Operands writes) {
  float const* sums = fp32(reads[0]);
  double total = 0;
  for (std::int64_t t = 0; t < rows(reads[0]); ++t)
    total += std::log(sums[2 * t + 1]) - sums[2 * t];
  fp32(writes[0])[0] += static_cast<float>(op.scale * total);
}

void loss_backward(Op const& op, Operands reads, Operands writes, KernelContext const& context) {
  Operand const& logits = reads[0];
  auto const* labels = static_cast<std::int32_t const*>(reads[1].data);
  float const* maximum = fp32(reads[2]);
  float const* sums = fp32(reads[3]);
  auto const scale = static_cast<float>(op.scale);
  std::int64_t const width = columns(logits);
  std::int64_t const first = first_of_shard(logits, 1, context.coordinate);
  parallel_ranges(rows(logits), 1, [&](std::int64_t begin, std::int64_t end) {
    std::array<float, run_length> in, out;
    for (std::int64_t t = begin; t < end; ++t) {
      std::int64_t const column = labels[t] - first;
      float const factor = scale / sums[2 * t + 1];
      float const most = maximum[t];
      for (std::int64_t at = 0; at < width; at += run_length) {
        std::int64_t const count = std::min(run_length, width - at);
        float const* values = load(logits, t * width + at, count, in.data());
        float* to = target(writes[0], t * width + at, out.data());
        for (std::int64_t i = 0; i < count; ++i)
          to[i] = exponential_of_negative(values[i] - most) * factor;
        if (at <= column && column < at + count)
          to[column - at] -= scale;
        store(writes[0], t * width + at, count, to);
      }
    }
  });
}

} // namespace foreplan::cpu

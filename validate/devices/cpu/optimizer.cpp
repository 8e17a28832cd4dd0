#include "validate/devices/cpu/kernels.hpp"
#include "validate/devices/cpu/runs.hpp"

#include <cmath>

namespace foreplan::cpu {

void norm_squared(Op const& op, Operands reads, Operands writes) {
  double total = 0;
  parallel_ranges(size(reads[0]), run_length, [&](std::int64_t begin, std::int64_t end) {
    std::array<float, run_length> scratch;
    double part = 0;
    for (std::int64_t at = begin; at < end; at += run_length) {
      std::int64_t const count = std::min(run_length, end - at);
      float const* x = load(reads[0], at, count, scratch.data());
      part += sum(count, [x](std::int64_t i) { return x[i] * x[i]; });
    }
#pragma omp critical
    total += part;
  });
  fp32(writes[0])[0] += static_cast<float>(op.scale * total);
}

// gradient, sum, rw master, rw m, rw v -> master, m, v, parameter
void adam(Op const& op, Operands reads, Operands writes, KernelContext const& context) {
  for (Operand const& operand : {reads[0], reads[2], reads[3], reads[4], writes[0], writes[1], writes[2], writes[3]})
    if (size(operand) != size(writes[0]))
      refuse(op, "operands of different sizes");
  TrainingParameters const& training = context.training;
  double const norm = std::sqrt(static_cast<double>(fp32(reads[1])[0]));
  double const factor = context.gradient_clip > 0 ? context.gradient_clip / (norm + 1e-6) : 1;
  auto const clip = static_cast<float>(factor > 1 ? 1 : factor); // a NaN norm stays NaN
  auto const beta1 = static_cast<float>(training.beta1);
  auto const beta2 = static_cast<float>(training.beta2);
  auto const correction1 = static_cast<float>(1 / (1 - std::pow(training.beta1, context.step)));
  auto const correction2 = static_cast<float>(1 / (1 - std::pow(training.beta2, context.step)));
  auto const rate = static_cast<float>(training.learning_rate);
  auto const epsilon = static_cast<float>(training.epsilon);
  for_each_run(size(writes[0]), [&](std::int64_t at, std::int64_t count) {
    std::array<std::array<float, run_length>, 8> scratch;
    float const* gradient = load(reads[0], at, count, scratch[0].data());
    float const* master = load(reads[2], at, count, scratch[1].data());
    float const* first = load(reads[3], at, count, scratch[2].data());
    float const* second = load(reads[4], at, count, scratch[3].data());
    float* to_master = target(writes[0], at, scratch[4].data());
    float* to_first = target(writes[1], at, scratch[5].data());
    float* to_second = target(writes[2], at, scratch[6].data());
    float* parameter = target(writes[3], at, scratch[7].data());
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
      float const g = gradient[i] * clip;
      float const m = beta1 * first[i] + (1 - beta1) * g;
      float const v = beta2 * second[i] + (1 - beta2) * g * g;
      float const value = master[i] - rate * (m * correction1) / (std::sqrt(v * correction2) + epsilon);
      to_master[i] = value;
      to_first[i] = m;
      to_second[i] = v;
      parameter[i] = value;
    }
    store(writes[0], at, count, to_master);
    store(writes[1], at, count, to_first);
    store(writes[2], at, count, to_second);
    store(writes[3], at, count, parameter);
  });
}

} // namespace foreplan::cpu

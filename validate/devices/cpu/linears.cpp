#include "validate/devices/cpu/gemm.hpp"
#include "validate/devices/cpu/kernels.hpp"
#include "validate/devices/cpu/runs.hpp"

namespace foreplan::cpu {
namespace {

// The tensor as a matrix of tokens by everything else.
Matrix by_token(Operand const& operand) {
  return {operand.data, dtype(operand), rows(operand), columns(operand), columns(operand)};
}

// A weight (in, out...) as (in, out); transposed, (out..., in) as (out, in).
Matrix weight_matrix(Op const& op, Operand const& operand) {
  std::int64_t const width = op.transposed ? operand.tensor->shape.back() : columns(operand);
  return {operand.data, dtype(operand), size(operand) / width, width, width};
}

void add_bias(Operand const& y, Operand const& bias) {
  std::int64_t const width = columns(y);
  parallel_ranges(rows(y), 1, [&](std::int64_t begin, std::int64_t end) {
    std::array<float, run_length> a, b;
    for (std::int64_t at = 0; at < width; at += run_length) {
      std::int64_t const count = std::min(run_length, width - at);
      float const* values = load(bias, at, count, b.data());
      for (std::int64_t t = begin; t < end; ++t) {
        float const* before = load(y, t * width + at, count, a.data());
        float* to = target(y, t * width + at, a.data());
        for (std::int64_t i = 0; i < count; ++i)
          to[i] = before[i] + values[i];
        store(y, t * width + at, count, to);
      }
    }
  });
}

} // namespace

void linear_forward(Op const& op, Operands reads, Operands writes) {
  Matrix const weight = weight_matrix(op, reads[1]);
  multiply(by_token(reads[0]), op.transposed ? transpose(weight) : weight, by_token(writes[0]));
  if (reads.size() > 2)
    add_bias(writes[0], reads[2]);
}

void linear_input_gradient(Op const& op, Operands reads, Operands writes) {
  Matrix const weight = weight_matrix(op, reads[1]);
  multiply(by_token(reads[0]), op.transposed ? weight : transpose(weight), by_token(writes[0]));
}

void linear_weight_gradient(Op const& op, Operands reads, Operands writes) {
  Matrix const x = by_token(reads[0]);
  Matrix const dy = by_token(reads[1]);
  Matrix const dweight = weight_matrix(op, writes[0]);
  bool const adds = reads.size() == 2 + writes.size();
  if (op.transposed)
    multiply(transpose(dy), x, dweight, adds);
  else
    multiply(transpose(x), dy, dweight, adds);
  if (writes.size() > 1)
    bias_gradient(reads[1], writes[1]);
}

// Each thread has a range of columns.
void bias_gradient(Operand const& dy, Operand const& dbias) {
  std::int64_t const width = columns(dy);
  constexpr std::int64_t line = 32; // elements of a cache line, at least
  parallel_ranges(width, line, [&](std::int64_t first, std::int64_t last) {
    std::array<float, run_length> total, row, before;
    for (std::int64_t at = first; at < last; at += run_length) {
      std::int64_t const count = std::min(run_length, last - at);
      std::fill_n(total.begin(), count, 0.0F);
      for (std::int64_t t = 0; t < rows(dy); ++t) {
        float const* values = load(dy, t * width + at, count, row.data());
        for (std::int64_t i = 0; i < count; ++i)
          total[static_cast<std::size_t>(i)] += values[i];
      }
      float const* old = load(dbias, at, count, before.data());
      float* to = target(dbias, at, before.data());
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = old[i] + total[static_cast<std::size_t>(i)];
      store(dbias, at, count, to);
    }
  });
}

} // namespace foreplan::cpu

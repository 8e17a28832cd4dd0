// Matrix products by oneDNN, bf16 or fp32, with fp32 accumulation. Measured on a Zen 5 core (AVX512-BF16), one thread,
// 2048 cubed: oneDNN 2.6 bf16 440 Gflop/s, fp32 220; OpenBLAS 0.3.21 fp32 130 and no bf16 here.
#pragma once

#include "plan/plan.hpp"

#include <cstdint>
#include <string>

namespace foreplan::cpu {

// rows x columns as it is multiplied. Element (i, j) lies at i * stride + j, or, transposed, at j * stride + i.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::fp32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
  bool transposed = false;
};

inline Matrix transpose(Matrix const& matrix) {
  return {matrix.data, matrix.dtype, matrix.columns, matrix.rows, matrix.stride, !matrix.transposed};
}

// c = a b, or c += a b. a and b are of one dtype; c is not transposed. On the threads of the rank; on the caller's alone
// inside a parallel loop.
void multiply(Matrix const& a, Matrix const& b, Matrix const& c, bool accumulate = false);

std::string product_library(); // "oneDNN 2.6.3"

} // namespace foreplan::cpu

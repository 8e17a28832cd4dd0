// Time of matrix products, alone on the device.
#pragma once

#include "timing/kernels/machine.hpp"

#include <cstdint>

namespace foreplan {

// groups x (m x k) times (k x n). Grouped products (experts) are kernels of their own on several streams; batched ones
// (unfused attention) are one kernel.
struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t groups = 1;
  NumberFormat format = NumberFormat::bf16;
  std::int8_t output_bytes = 2; // of an element
  bool accumulate = false;      // adds to the output: reads it too
  bool batched = false;
  bool aligned = true; // the contiguous dimensions are multiples of 16 bytes
};

struct GemmLimits {
  double memory = 0; // s
  double power = 0;
  double tiles = 0;
};
GemmLimits gemm_limits(KernelMachine const& machine, GemmShape const& shape);

// Three limits, of which the largest counts (the cube root of the sum of cubes), after a fixed time:
//   memory      bytes of inputs and output over the memory rate
//   power       flops over the rate that large products reach
//   tiles       the output is cut into tiles, the best of a list; the multiprocessors run them in waves, whole ones in
//               part of the kernels, a tile k / split + epilogue steps of k; a step multiplies (2 rows columns) and
//               loads (tile_load per element)
// The last output tile trails the rest by the latency of its steps of k; what is added to an output that was there is
// read and written in part behind the products. Never falls when m, n, k or groups grow.
double modelled_gemm_seconds(KernelMachine const& machine, GemmShape const& shape);
// The same, corrected by measured products (cluster/product_correction.hpp), where it is one product: does not fall when
// m, n or k doubles.
double gemm_seconds(KernelMachine const& machine, GemmShape const& shape);

// Cast of `elements` inputs of 16 bits to the format: a kernel that reads 2 bytes and writes the format; per tensor,
// two more that find the maximum, one more pass over the input. 0 for formats of 16 bits and more.
double quantize_seconds(KernelMachine const& machine, NumberFormat format, double elements);

double flops_of(GemmShape const& shape);
double bytes_of(GemmShape const& shape); // inputs once, output once (twice when accumulated)

} // namespace foreplan

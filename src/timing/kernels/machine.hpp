// A chip as the formulas of kernels need it: rates in flops and bytes a second, times in seconds, made once from a
// chip's data sheet and its kernel parameters.
#pragma once

#include "cluster/cluster.hpp"
#include "cluster/kernel_parameters.hpp"

#include <array>

namespace foreplan {

struct KernelMachine {
  double multiprocessors = 1;
  double clock = 1;                                   // under load, of the clock that the peaks assume
  double memory_rate = 1;                             // bytes/s
  double peak = 1;                                    // flops/s of 16-bit products, as in the data sheet
  std::array<double, number_format_count> rate{};     // flops/s of large products, at clock 1
  std::array<double, number_format_count> epilogue{}; // steps of k that begin and end of a tile take
  double tile_load = 0;
  double fixed = 0;          // s
  double quantize_fixed = 0; // s
  double attention_matrix = 1;
  double portable_attention = 1; // as attention_matrix, of kernels written for Ampere
  double attention_softmax = 0;
  double attention_overhead = 0;
};

KernelMachine kernel_machine(Chip const& chip, KernelParameters const& parameters);

// Peak of a format in the data sheet, or what follows from the 16-bit one where the sheet is silent: 8 bits run at
// twice, 4 bits at four times its rate, tf32 at half. nvfp4 is always counted from the 16-bit peak (matrix_fp4).
double peak_rate(Chip const& chip, NumberFormat format);

} // namespace foreplan

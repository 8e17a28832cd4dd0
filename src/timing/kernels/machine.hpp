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
  double ampere_rate = 1;        // of `peak`, by the instructions of Ampere
  double attention_softmax = 0;
  double attention_overhead = 0;
  ProductCorrection const* correction = nullptr; // of measured products; null: none
};

// Refers to the parameters' correction.
KernelMachine kernel_machine(Chip const& chip, KernelParameters const& parameters);

} // namespace foreplan

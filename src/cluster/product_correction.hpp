// What measured products say beyond the formula: log(measured / modelled) of rows of a table, smoothed over the octaves of
// m, n and k. A profile holds the rows; the smooth function is made once, when it is read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace foreplan {

class JsonReader;

// What the inputs of a matrix product are stored in. fp8: one scale a tensor; fp8_row: one a row; fp8_block: one a
// block of 128; mxfp8: one a block of 32; nvfp4: 4 bits, one scale a block of 16.
enum class NumberFormat : std::uint8_t { fp32, tf32, bf16, fp8, fp8_row, fp8_block, mxfp8, nvfp4, int8 };
inline constexpr int number_format_count = 9;
std::string_view to_string(NumberFormat format);

// One measured product, without groups.
struct ProductResidual {
  NumberFormat format = NumberFormat::bf16;
  bool accumulate = false; // adds to its output: weight gradients
  double m = 1, n = 1, k = 1;
  double log_ratio = 0;
  double weight = 1; // of a row measured on this very machine
};

// Values at whole octaves, between them linear in the logarithms, beyond them constant. Formats that run the same
// kernels share a table; formats without rows have none.
struct ProductCorrection {
  static constexpr int formats = 5; // bf16; fp8 by tensor or row; fp8 by block; nvfp4; int8
  static constexpr int first_octave_m = 0, octaves_m = 17;
  static constexpr int first_octave = 6, octaves = 12; // of n and k
  static constexpr std::size_t size = static_cast<std::size_t>(octaves_m) * octaves * octaves;
  // Of products, then of accumulated ones; empty: no correction.
  std::array<std::vector<float>, std::size_t{2} * formats> tables;
};

// The formula of products in short (timing/kernels/gemm.hpp), for the rule that a correction falls at most half as fast as
// it grows: so a product twice as large is not faster.
struct ProductGrowth {
  double fixed = 0;       // s
  double memory_rate = 1; // bytes/s
  double rate = 1;        // flops/s
  double tile_rate = 1;   // flops/s of one multiprocessor
  double epilogue = 0;    // steps of k
  double step = 0;        // s, latency of a step of k
  double parts = 1;       // that k may be cut in
  double input_bytes = 2; // of an element
};

// The mean of log_ratio of the rows near (a bell of one octave in m, n and k), drawn to 0 where little is near.
// `growth`: by table modulo ProductCorrection::formats.
ProductCorrection product_correction(std::span<ProductResidual const> rows,
                                     std::array<ProductGrowth, ProductCorrection::formats> const& growth);

// Table of a format, -1: has none.
int correction_table(NumberFormat format);

// log(measured / modelled) that is expected of a product; 0 without a table.
double log_correction(ProductCorrection const& correction, NumberFormat format, bool accumulate, double m, double n,
                      double k);

std::vector<ProductResidual> read_product_residuals(JsonReader const& reader);

} // namespace foreplan

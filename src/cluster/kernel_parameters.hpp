// How kernels run on one chip: the block "kernels" of a hardware profile. Few physical numbers, fitted to measured
// kernels by `foreplan calibrate`; what no row moved stays at its prior and says so. A profile without the block has
// one efficiency a class of kernels instead (HardwareProfile::efficiency).
#pragma once

#include "cluster/evidence.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace foreplan {

class JsonReader;

// What the inputs of a matrix product are stored in. fp8: one scale a tensor; fp8_row: one a row; fp8_block: one a
// block of 128; mxfp8: one a block of 32; nvfp4: 4 bits, one scale a block of 16.
enum class NumberFormat : std::uint8_t { fp32, tf32, bf16, fp8, fp8_row, fp8_block, mxfp8, nvfp4, int8 };
inline constexpr int number_format_count = 9;
std::string_view to_string(NumberFormat format);

// The parameters by number. Rates are fractions of the data sheet's at the clock that it assumes.
namespace kernel {
enum Parameter : std::size_t {
  memory_rate,         // of the memory bandwidth, by long streams
  fixed,               // s, device time of a kernel beyond its work
  quantize_fixed,      // s, of one kernel of the cast of inputs to 8 or 4 bits
  epilogue,            // begin and end of an output tile, as steps of k at the 16-bit rate
  tile_load,           // loading of a tile's inputs: elements that take as long as one multiply-add of 16 bits each
  matrix_16bit,        // bf16, fp16 and tf32, of their peak
  matrix_fp8,          // one scale a tensor or a row
  matrix_block_scaled, // fp8 in blocks of 128 or 32
  matrix_fp4,
  matrix_int8,
  matrix_fp32,
  attention_matrix,   // products of fused attention, of the 16-bit peak
  attention_softmax,  // softmax of one score, as channels of a head at the 16-bit peak
  attention_overhead, // begin and end of a block of queries, as keys
  count
};
// What a band is measured for.
enum Class : std::size_t {
  gemm_16bit,
  gemm_8bit,
  gemm_4bit,
  attention_forward,
  attention_backward,
  memory_bound,
  class_count
};
} // namespace kernel

using KernelValues = std::array<double, kernel::count>;

struct KernelParameter {
  std::string_view name; // key in the profile
  std::string_view unit; // "us", "" for a ratio or a count
  std::string_view meaning;
  double prior = 0;
  double width = 0; // standard deviation of the prior, of the logarithm
  double lowest = 0;
  double highest = 0;
};
std::array<KernelParameter, kernel::count> const& kernel_parameters();
KernelValues kernel_priors();
std::array<std::string_view, kernel::class_count> const& kernel_class_names();

struct KernelParameters {
  KernelValues values = kernel_priors();
  KernelValues priors = kernel_priors(); // of this chip: where the fit began
  std::array<int, kernel::count> rows{}; // measured rows whose time follows the value, where the fit moved it
  double clock_under_load = 1;           // while dense products run, of the clock that the peak assumes: power limits
  // Of each class: standard deviation of log(measured / predicted) of left-out rows; 0: not known.
  std::array<double, kernel::class_count> band{};
};

// Whether the fit moved the value from its prior.
bool is_moved(KernelParameters const& parameters, std::size_t parameter);

// Reads the block; the origins of its numbers are added to `sources`, with those of absent keys as priors.
KernelParameters read_kernel_parameters(JsonReader const& reader, std::vector<Source>& sources);

} // namespace foreplan

// How kernels run on one chip: the block "kernels" of a hardware profile. Few physical numbers, fitted to measured
// kernels by `foreplan calibrate`; what no row moved stays at its prior and says so. A profile without the block has
// one efficiency a class of kernels instead (HardwareProfile::efficiency).
#pragma once

#include "cluster/evidence.hpp"
#include "cluster/product_correction.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace foreplan {

class JsonReader;
struct Chip;

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
  std::vector<ProductResidual> residuals; // measured products; may be empty
  ProductCorrection correction;           // made of them
};

// Peak of a format in the data sheet, or what follows from the 16-bit one where the sheet is silent: 8 bits run at
// twice, 4 bits at four times its rate, tf32 at half. nvfp4 is always counted from the 16-bit peak (matrix_fp4).
double peak_rate(Chip const& chip, NumberFormat format);
// The parameter by which it is reached.
kernel::Parameter efficiency_of(NumberFormat format);
double bytes_of(NumberFormat format); // of an element, its share of the scales included
// Of the libraries' kernels: a tile's pipeline trails by this many seconds for each step of k (0.40 to 0.52 ns in the fits
// of A100, H100, H200, B200, GB200); kernels may cut k in parts, but for operands with scales of blocks.
inline constexpr double step_latency = 0.45e-9;
inline constexpr int split_parts = 4;
bool can_split(NumberFormat format);

ProductCorrection product_correction(Chip const& chip, KernelParameters const& parameters,
                                     std::span<ProductResidual const> rows);

// Whether the fit moved the value from its prior.
bool is_moved(KernelParameters const& parameters, std::size_t parameter);

// Reads the block of this chip; the origins of its numbers are added to `sources`, with those of absent keys as priors.
KernelParameters read_kernel_parameters(JsonReader const& reader, Chip const& chip, std::vector<Source>& sources);

} // namespace foreplan

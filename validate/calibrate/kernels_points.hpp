// Measured kernels: the rows of published/kernels.csv, or of a table with the same columns.
#pragma once

#include "timing/kernels/attention.hpp"
#include "timing/kernels/gemm.hpp"

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace foreplan {

// A long stream of bytes; its time is of one byte.
struct StreamShape {};

struct MeasuredKernel {
  std::string id;
  std::string family;  // shapes that belong together and are left out together
  std::string chip;    // "h100"
  std::string machine; // whose measurements: repository or organisation
  std::string op;      // kernel_class of the table
  std::string dtype;   // as in the table
  std::string trust;   // A, B, C
  bool usable = true;  // fit_ok
  std::variant<GemmShape, AttentionShape, StreamShape> shape;
  kernel::Class kind = kernel::gemm_16bit;
  bool backward = false; // attention
  bool prepares = false; // the time includes the cast of the inputs; of attention, rotary embedding and cache
  double seconds = 0;
};

struct KernelTable {
  std::vector<MeasuredKernel> kernels;
  int others =
      0; // rows of other kinds than matrix product, fused attention and memory stream, or without shape or time
};

// Throws InputError that names file, line, column, value and rule.
KernelTable read_kernel_table(std::string const& path);

// "m 4096 n 8192 k 1024", "b 1 s 4096 heads 32/8 d 128"
std::string describe_shape(MeasuredKernel const& row);

// What makes two rows the same measurement.
std::string identity(MeasuredKernel const& row);

// Rows of a product, length of a sequence: what size bands are made of.
double size_of_row(MeasuredKernel const& row);

struct KnownChip {
  std::string name;         // in tables
  std::string profile_chip; // in hardware profiles
  Chip chip;
  double clock_under_load = 1;
  double matrix_prior = 0; // of the efficiencies of products at that clock; 0: the common one
  std::string source;      // of these numbers
};
// published/chips.csv
std::vector<KnownChip> const& known_chips();
KnownChip const& known_chip(std::string_view name); // throws InputError with the names
bool is_known_chip(std::string_view name);

} // namespace foreplan

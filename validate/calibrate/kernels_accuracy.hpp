// How well kernels are predicted: every family of shapes by a fit that has not seen it.
#pragma once

#include "validate/calibrate/kernels_fit.hpp"
#include "validate/calibrate/statistics.hpp"

#include <map>
#include <string>
#include <vector>

namespace foreplan {

struct JudgedKernel {
  MeasuredKernel row;
  double predicted = 0; // seconds, the row's family left out
};

struct KernelBand {
  std::string chip, op, dtype, size; // "all" or one: "h100", "gemm", "bf16", "m 256-1023"
  ErrorSummary errors;
  std::vector<JudgedKernel const*> worst; // first: the worst
};

struct KernelAccuracyReport {
  std::string data; // file
  std::vector<JudgedKernel> rows;
  std::vector<std::pair<std::string, KernelFit>> fits; // of each chip, of all rows
  std::map<std::string, int> left_out;                 // rows that are not judged: why, how many
};

// `data`: a table as for read_kernel_table(); empty: the published one. Fits use the published rows and those of
// `data`, all but the family that is judged. `chip`: only this one; empty: all.
KernelAccuracyReport kernel_accuracy(std::string const& data = {}, std::string const& chip = {});

// All chips with at least 100 rows together, then every chip; operations, number formats, sizes.
std::vector<KernelBand> kernel_bands(std::vector<JudgedKernel> const& rows);

std::string kernel_accuracy_text(KernelAccuracyReport const& report);
std::string kernel_accuracy_json(KernelAccuracyReport const& report);

std::string published_kernels_path();

} // namespace foreplan

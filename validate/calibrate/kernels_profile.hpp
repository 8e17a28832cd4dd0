// The block "kernels" of a hardware profile, from published rows and a user's own.
#pragma once

#include "validate/calibrate/kernels_fit.hpp"

#include <optional>
#include <string>
#include <vector>

namespace foreplan {

// The known chip with the name of a profile's, its data sheet replaced by the profile's. nullopt: no such chip in
// published/chips.csv.
std::optional<KnownChip> known_chip_of(Chip const& profile_chip);

// Parameters fitted to the chip's rows, published and own; bands of left-out families. A user's rows and a published
// row count the same; rows of another machine than the one with the most rows say its clock under load.
KernelAccuracy calibrate_kernels(KnownChip const& chip, std::vector<MeasuredKernel> const& own = {});

// The clock of the machine that most of a user's rows come from, where the fit found one; else that of the profile
// which is calibrated; else the chip's.
struct ClockUnderLoad {
  double value = 1;
  std::string kind;
  std::string source;
};
ClockUnderLoad clock_under_load(KnownChip const& chip, KernelFit const& fit, std::vector<MeasuredKernel> const& own,
                                HardwareProfile const& profile);

// Machine that most of a user's products were measured on; "": the user has none of this chip.
std::string machine_of(KnownChip const& chip, std::vector<MeasuredKernel> const& own);

// JSON of the block, indented to stand at the top level of a profile: "kernels": {...}. Its residuals are those of
// `machine`; "": of all alike.
std::string kernels_block(KnownChip const& chip, KernelAccuracy const& calibration, ClockUnderLoad const& clock,
                          std::string const& machine = {});

// Name, value, prior, range, how much of the prior's width is left, and the number of rows that moved it.
std::string kernel_parameter_table(KernelFit const& fit);
// The same of a profile, with what each rests on.
std::string kernel_parameter_table(KernelParameters const& parameters);

} // namespace foreplan

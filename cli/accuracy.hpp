// The halves of the commands about measurements, kernels and collectives.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace foreplan {

int run_accuracy_kernels(std::vector<std::string> const& arguments);
int run_accuracy_memory(std::vector<std::string> const& arguments);
int run_accuracy_ratios(std::vector<std::string> const& arguments);
int run_accuracy_runs(std::vector<std::string> const& arguments);
int run_accuracy_collectives(std::vector<std::string> const& arguments);

struct CalibrateFiles {
  std::string points;
  std::string hardware; // the profile that is read
  std::string out;      // the profile that is written
};
int calibrate_kernels(CalibrateFiles const& files);
int calibrate_collectives(CalibrateFiles const& files);

// Measures the machine itself. 0: as many ranks as threads leave cores for; as many threads as cores a rank has.
struct MachineOptions {
  int ranks = 0;
  int threads = 0;
  bool quick = false; // few shapes, bf16 only: seconds, not minutes
  std::string out;
};
int calibrate_machine(MachineOptions const& options);

// Writes the profile with one block replaced or added; it must be readable as a profile.
void write_profile(CalibrateFiles const& files, std::string_view key, std::string const& block);

} // namespace foreplan

#include "cli/accuracy.hpp"
#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cluster/read_profile.hpp"
#include "io/input_error.hpp"
#include "validate/calibrate/csv.hpp"
#include "validate/calibrate/kernels_profile.hpp"
#include "validate/calibrate/profile_text.hpp"
#include "validate/calibrate/statistics.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <sstream>

namespace foreplan {

namespace {

std::string text_of(std::string const& path) {
  std::ifstream file(path);
  if (!file)
    throw InputError(fmt::format("{}: cannot be read; it must be a hardware profile", path));
  std::stringstream stream;
  stream << file.rdbuf();
  return stream.str();
}

// Tables of kernels have a column for the kind of kernel; everything else is for the readers of collectives.
bool is_kernel_table(std::string const& path) {
  std::ifstream file(path);
  std::string header;
  if (!file || !std::getline(file, header))
    throw InputError(fmt::format("--points {}: cannot be read, or is empty", path));
  return header.find("kernel_class") != std::string::npos;
}

} // namespace

void write_profile(CalibrateFiles const& files, std::string_view key, std::string const& block) {
  std::string const text = with_member(text_of(files.hardware), key, block);
  (void)read_profile(JsonReader::read_text(text, files.out, "foreplan hardware 1"));
  std::ofstream out(files.out);
  out << text;
  out.close();
  if (!out)
    throw InputError(fmt::format("--out {}: cannot be written", files.out));
}

int calibrate_kernels(CalibrateFiles const& files) {
  HardwareProfile const profile = read_profile(files.hardware);
  std::optional<KnownChip> const chip = known_chip_of(profile.chip);
  if (!chip) {
    std::string known;
    for (KnownChip const& one : known_chips())
      known += (known.empty() ? "" : "; ") + one.profile_chip;
    throw InputError(fmt::format("{}: chip.name: \"{}\" is not a chip of published/chips.csv, which are {}",
                                 files.hardware, profile.chip.name, known));
  }
  std::vector<MeasuredKernel> const own = read_kernel_table(files.points).kernels;
  KernelAccuracy const calibration = calibrate_kernels(*chip, own);
  if (calibration.rows.empty())
    std::cout << fmt::format("No row of {} in {} or among the published ones: every parameter is its prior.\n",
                             chip->name, files.points);
  write_profile(files, "kernels",
                kernels_block(*chip, calibration, clock_under_load(*chip, calibration.fit, own, profile),
                              machine_of(*chip, own)));
  ErrorSummary const errors = summarise(calibration.log_ratios);
  std::cout << fmt::format(
                   "{}: {} rows, families of shapes left out: error {:.1f} % median, {:.1f} % p90, bias {:+.1f} %\n\n",
                   files.out, errors.count, 100 * errors.median, 100 * errors.p90, 100 * errors.bias)
            << kernel_parameter_table(calibration.fit);
  return 0;
}

int run_calibrate(std::vector<std::string> const& arguments) {
  cxxopts::Options options("foreplan calibrate",
                           "Fits a hardware profile to measured kernels or collectives, or measures "
                           "this machine.");
  auto text = [] { return cxxopts::value<std::string>(); };
  options.add_options()("points", "measurements: a table of kernels, or of collectives, or what nccl-tests prints",
                        text())("hardware", "profile to begin with", text())("out", "profile to write", text())(
      "this-machine", "measure the processors that this runs on, and write their profile")(
      "quick", "with --this-machine: few shapes, bf16 only")(
      "ranks", "with --this-machine: processes that a run will have; 0: one a core",
      cxxopts::value<std::string>()->default_value("0"))("threads", "threads of each; 0: its share of the cores",
                                                         cxxopts::value<std::string>()->default_value("0"));
  auto const parsed = parse(options, arguments);
  if (!parsed)
    return 0;
  if (parsed->count("this-machine") > 0)
    return calibrate_machine({static_cast<int>(whole_number(*parsed, "ranks", 0, 4096)),
                              static_cast<int>(whole_number(*parsed, "threads", 0, 4096)), parsed->count("quick") > 0,
                              required_text(*parsed, "out")});
  CalibrateFiles const files{required_text(*parsed, "points"), required_text(*parsed, "hardware"),
                             required_text(*parsed, "out")};
  return is_kernel_table(files.points) ? calibrate_kernels(files) : calibrate_collectives(files);
}

} // namespace foreplan

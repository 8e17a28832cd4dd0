#include "tests/catch.hpp"

#include "cluster/read_profile.hpp"
#include "timing/kernels.hpp"
#include "timing/kernels/gemm.hpp"
#include "validate/calibrate/kernels_accuracy.hpp"
#include "validate/calibrate/kernels_profile.hpp"
#include "validate/calibrate/profile_text.hpp"

#include <cmath>
#include <fstream>
#include <sstream>

using namespace foreplan;

namespace {

std::string const h100_path = std::string(FOREPLAN_ROOT) + "/hardware_profiles/dgx-h100.json";

// Products of a made-up chip with known parameters: what a fit must find again.
std::vector<MeasuredKernel> made_up_rows(KnownChip const& chip, KernelParameters const& parameters) {
  KernelMachine const machine = kernel_machine(chip.chip, parameters);
  std::vector<MeasuredKernel> rows;
  for (std::int64_t n : {512, 4096, 12288})
    for (std::int64_t k : {1024, 8192})
      for (std::int64_t m : {1, 64, 300, 1024, 4096, 16384}) {
        MeasuredKernel row;
        row.chip = chip.name;
        row.op = "gemm";
        row.dtype = "bf16";
        row.trust = "A";
        row.family = std::to_string(n) + "|" + std::to_string(k);
        row.shape = GemmShape{.m = m, .n = n, .k = k};
        row.seconds = gemm_seconds(machine, std::get<GemmShape>(row.shape));
        rows.push_back(row);
      }
  return rows;
}

std::vector<MeasuredKernel const*> pointers(std::vector<MeasuredKernel> const& rows) {
  std::vector<MeasuredKernel const*> result;
  for (MeasuredKernel const& row : rows)
    result.push_back(&row);
  return result;
}

ErrorSummary errors_of(std::vector<KernelBand> const& bands, std::string const& op, std::string const& dtype) {
  for (KernelBand const& band : bands)
    if (band.chip == "all" && band.op == op && band.dtype == dtype && band.size == "all")
      return band.errors;
  FAIL("no band of " << op << " " << dtype);
  return {};
}

} // namespace

TEST_CASE("a fit finds a chip's parameters") {
  KernelParameters truth;
  truth.values[kernel::memory_rate] = 0.7;
  truth.values[kernel::fixed] = 4e-6;
  truth.values[kernel::matrix_16bit] = 0.6;
  KnownChip const& chip = known_chip("h100");
  std::vector<MeasuredKernel> const rows = made_up_rows(chip, truth);
  KernelFit const fitted = fit_kernels(chip, pointers(rows));
  CHECK(fitted.parameters.values[kernel::memory_rate] == Approx(0.7).epsilon(0.01));
  CHECK(fitted.parameters.values[kernel::fixed] == Approx(4e-6).epsilon(0.02));
  CHECK(fitted.parameters.values[kernel::matrix_16bit] == Approx(0.6).epsilon(0.02));
  CHECK(fitted.parameters.values[kernel::matrix_fp4] == kernel_priors()[kernel::matrix_fp4]);
  CHECK(fitted.clocks.empty());
  CHECK(leave_families_out(chip, pointers(rows), pointers(rows)).band[kernel::gemm_16bit] < 0.02);
}

// At most 12 parameters a chip have rows of a table that move them.
TEST_CASE("few parameters a chip") {
  for (auto const& [chip, fitted] : kernel_accuracy().fits) {
    INFO(chip);
    std::ptrdiff_t moved = 0;
    for (std::size_t i = 0; i < kernel::count; ++i)
      moved += fitted.result.rows[i] > 0 ? 1 : 0;
    CHECK(moved <= 12);
  }
}

// The bars of the project: median and 90th percentile, families of shapes left out, chips with at least 100 rows.
TEST_CASE("published kernels are predicted within the bars") {
  KernelAccuracyReport const report = kernel_accuracy();
  std::vector<KernelBand> const bands = kernel_bands(report.rows);
  auto within = [&](std::string const& op, std::string const& dtype, double median, double p90) {
    ErrorSummary const errors = errors_of(bands, op, dtype);
    INFO(op << " " << dtype);
    CHECK(errors.median < median);
    CHECK(errors.p90 < p90);
    CHECK(std::abs(errors.bias) < 0.02);
  };
  within("products", "bf16", 0.05, 0.16);
  within("products", "fp8", 0.08, 0.22);
  within("products", "fp8_block", 0.08, 0.22);
  within("products", "nvfp4", 0.11, 0.32);
  within("attention_fwd", "bf16", 0.06, 0.16);
  within("attention_fwd", "fp8", 0.06, 0.16);
  CHECK(kernel_accuracy_json(report).find("\"bands\"") != std::string::npos);
}

TEST_CASE("a calibrated block is read back") {
  std::ifstream file(h100_path);
  std::stringstream text;
  text << file.rdbuf();
  HardwareProfile const before = read_profile(h100_path);
  std::optional<KnownChip> const chip = known_chip_of(before.chip);
  REQUIRE(chip);
  KernelAccuracy const calibration = calibrate_kernels(*chip);
  std::string const block = kernels_block(*chip, calibration, clock_under_load(*chip, calibration.fit, {}, before));
  HardwareProfile const after = read_profile(
      JsonReader::read_text(with_member(text.str(), "kernels", block), "h100.json", "foreplan hardware 1"));
  REQUIRE(after.kernels);
  for (std::size_t i = 0; i < kernel::count; ++i)
    CHECK(after.kernels->values[i] == Approx(calibration.fit.parameters.values[i]).epsilon(0.005));
  CHECK(after.kernels->band[kernel::gemm_16bit] == Approx(calibration.band[kernel::gemm_16bit]).margin(0.001));
}

// 4096 tokens x 8192 -> 28672 in bf16, as the formula of gemm.hpp has it; without the block by the constant efficiency:
// 2 * 4096 * 8192 * 28672 flops / (0.8 * 989.4e12) + 4 us.
TEST_CASE("the demand of a linear layer") {
  HardwareProfile profile = read_profile(h100_path);
  REQUIRE(profile.kernels);
  Tensor x, weight, y;
  x.shape = {4096, 8192};
  weight.shape = {8192, 28672};
  y.shape = {4096, 28672};
  Operands const operands{{&x, &weight}, {&y}};
  Op op;
  op.kind = OpKind::linear_forward;
  Demand const fitted = kernel_demand(op, operands, profile, 1);
  double const seconds = gemm_seconds(kernel_machine(profile.chip, *profile.kernels),
                                      {.m = 4096, .n = 28672, .k = 8192});
  CHECK(std::get<ComputeDemand>(fitted.device).alone.value() == Approx(seconds));
  CHECK(fitted.band == profile.kernels->band[kernel::gemm_16bit]);
  CHECK(fitted.band > 0.01);
  CHECK(std::get<ComputeDemand>(kernel_demand(op, operands, profile, 0.5).device).alone.value() == Approx(2 * seconds));

  profile.kernels.reset();
  double const constant = 2.0 * 4096 * 8192 * 28672 / (profile.efficiency.gemm * profile.chip.bf16_peak.value()) +
                          profile.kernel_fixed.value();
  Demand const plain = kernel_demand(op, operands, profile, 1);
  CHECK(std::get<ComputeDemand>(plain.device).alone.value() == Approx(constant));
  CHECK(plain.band == 0);
}

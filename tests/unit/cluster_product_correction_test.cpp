#include "cluster/product_correction.hpp"

#include "cluster/read_profile.hpp"
#include "tests/catch.hpp"
#include "timing/kernels/gemm.hpp"

#include <cmath>
#include <filesystem>
#include <random>

using namespace foreplan;

namespace {

using Growth = std::array<ProductGrowth, ProductCorrection::formats>;

// Time that grows with every dimension, so that no correction is limited.
Growth steep() {
  Growth growth;
  growth.fill({.memory_rate = 1e30, .rate = 1, .tile_rate = 1e30});
  return growth;
}

ProductResidual row_at(double m, double log_ratio) { return {.m = m, .n = 4096, .k = 4096, .log_ratio = log_ratio}; }

double at(ProductCorrection const& correction, double m, bool accumulate = false) {
  return log_correction(correction, NumberFormat::bf16, accumulate, m, 4096, 4096);
}

} // namespace

// One row against the doubt of one row: half of its residual; an octave away the bell has e^-0.5 of the weight.
TEST_CASE("a measured product corrects its neighbourhood", "[correction]") {
  std::array const rows{row_at(1024, 0.2)};
  ProductCorrection const correction = product_correction(rows, steep());
  CHECK(at(correction, 1024) == Approx(0.1));
  double const near = std::exp(-0.5);
  CHECK(at(correction, 2048) == Approx(0.2 * near / (near + 1)));
  // Linear in the logarithm between.
  CHECK(at(correction, 1024 * std::sqrt(2.0)) == Approx((at(correction, 1024) + at(correction, 2048)) / 2));
  CHECK(at(correction, 1) == Approx(0).margin(1e-6));
  // Rows that do not add to their output count a tenth for such that do: 0.1 * 0.2 / 1.1.
  CHECK(at(correction, 1024, true) == Approx(0.02 / 1.1));
  CHECK(log_correction(correction, NumberFormat::nvfp4, false, 1024, 4096, 4096) == 0);
  CHECK(log_correction(correction, NumberFormat::tf32, false, 1024, 4096, 4096) == 0);
}

// However large the residual, at most 0.3 of it counts.
TEST_CASE("a correction is bounded", "[correction]") {
  std::vector<ProductResidual> const rows(1000, row_at(1024, 5));
  CHECK(at(product_correction(rows, steep()), 1024) == Approx(0.3 * 1000 / 1001));
}

// A fixed time: the mean of the least function above that does not fall, and the greatest below.
TEST_CASE("a correction does not fall where time does not grow", "[correction]") {
  Growth flat;
  flat.fill({.fixed = 1, .memory_rate = 1e30, .rate = 1e30, .tile_rate = 1e30});
  std::array const rows{row_at(1024, 0.2)};
  ProductCorrection const correction = product_correction(rows, flat);
  for (double m = 1; m < 60000; m *= 2)
    CHECK(at(correction, 2 * m) >= at(correction, m) - 1e-6);
  CHECK(at(correction, 1024) == Approx(0.05).margin(0.001)); // above: 0.1 from there on; below: 0 at the ends
}

// Beyond a step of quantization, and a doubling is one: on every profile that has measured products.
TEST_CASE("time does not fall when a product doubles, with the correction", "[correction]") {
  std::mt19937_64 engine(5);
  auto size = [&](double least, double most) {
    return static_cast<std::int64_t>(
        std::exp2(std::uniform_real_distribution<double>(std::log2(least), std::log2(most))(engine)));
  };
  for (auto const& entry : std::filesystem::directory_iterator(std::string(FOREPLAN_ROOT) + "/hardware_profiles")) {
    HardwareProfile const profile = read_profile(entry.path());
    if (!profile.kernels || profile.kernels->residuals.empty())
      continue;
    KernelMachine const machine = kernel_machine(profile.chip, *profile.kernels);
    int faster = 0;
    double worst = 0;
    for (int i = 0; i < 20000; ++i) {
      GemmShape shape{.m = size(1, 40000), .n = size(64, 140000), .k = size(64, 60000)};
      shape.format = static_cast<NumberFormat>(engine() % number_format_count);
      shape.accumulate = engine() % 4 == 0;
      double const seconds = gemm_seconds(machine, shape);
      for (std::int64_t GemmShape::*dimension : {&GemmShape::m, &GemmShape::n, &GemmShape::k}) {
        GemmShape larger = shape;
        larger.*dimension *= 2;
        double const change = gemm_seconds(machine, larger) / seconds - 1;
        faster += change < -1e-9 ? 1 : 0;
        worst = std::min(worst, change);
      }
    }
    INFO(profile.name << ": " << faster << " of 60000 are faster, at most by " << worst);
    CHECK(faster == 0);
  }
}

#include "tests/catch.hpp"

#include "timing/kernels/gemm.hpp"

#include <algorithm>
#include <cmath>
#include <random>

using namespace foreplan;

namespace {

// 100 multiprocessors, 1e15 flops/s of every format, and nothing else: no memory, no fixed times, no loads.
KernelMachine bare_machine() {
  KernelMachine machine;
  machine.multiprocessors = 100;
  machine.memory_rate = 1e30;
  machine.peak = 1e15;
  machine.rate.fill(1e15);
  return machine;
}

KernelMachine real_machine() {
  Chip chip;
  chip.bf16_peak = FlopsPerSecond(989.4e12);
  chip.fp32_peak = FlopsPerSecond(67e12);
  chip.memory_bandwidth = BytesPerSecond(3.35e12);
  chip.multiprocessors = 132;
  return kernel_machine(chip, {});
}

constexpr double boost = 1.4; // of gemm.cpp

double smooth(double a, double b) { return std::cbrt(a * a * a + b * b * b); }

struct RandomShapes {
  std::mt19937_64 engine{7};
  std::int64_t size(std::int64_t most) {
    double const octaves = std::uniform_real_distribution<double>(0, std::log2(static_cast<double>(most)))(engine);
    return static_cast<std::int64_t>(std::exp2(octaves));
  }
  GemmShape shape() {
    GemmShape shape{.m = size(40000), .n = size(140000), .k = size(60000)};
    shape.groups = size(4) == 1 ? 1 : size(256);
    shape.format = static_cast<NumberFormat>(size(1 << 20) % number_format_count);
    shape.accumulate = size(4) == 1;
    shape.batched = size(4) == 1;
    return shape;
  }
};

} // namespace

// 10 x 10 tiles of 128 x 128 are one wave of 100 multiprocessors, which alone run 1.4 times as fast as the power limit
// allows all: 2 m n k / 1e15 / 1.4 in tiles, 2 m n k / 1e15 by power. Tiles of other sizes are not faster.
TEST_CASE("a product of one whole wave") {
  GemmShape const shape{.m = 1280, .n = 1280, .k = 4096};
  double const power = 2.0 * 1280 * 1280 * 4096 / 1e15;
  CHECK(gemm_seconds(bare_machine(), shape) == Approx(4096 * step_latency + smooth(power, power / boost)));
}

// One row more: 21 x 20 tiles of 64 x 64 are 4.2 waves of a quarter of the work. 0.7 of the kernels spread the rest over all,
// 0.3 wait for it: 0.7 * 4.2 + 0.3 * 5 = 4.44 quarters. 11 x 10 tiles of 128 x 128 would take 0.7 * 1.1 + 0.3 * 2 = 1.37.
TEST_CASE("one row beyond a whole wave begins another") {
  double const wave = 2.0 * 1280 * 1280 * 4096 / 1e15 / boost;
  double const power = 2.0 * 1281 * 1280 * 4096 / 1e15;
  CHECK(gemm_seconds(bare_machine(), {.m = 1281, .n = 1280, .k = 4096}) ==
        Approx(4096 * step_latency + smooth(power, 4.44 / 4 * wave)));
}

// m = 1: (k n + k + n) * 2 bytes over the memory rate; nothing else counts.
TEST_CASE("a skinny product takes as long as its weights") {
  KernelMachine machine = bare_machine();
  machine.memory_rate = 1e12;
  double const bytes = 2.0 * (8192.0 * 8192 + 8192 + 8192);
  CHECK(gemm_seconds(machine, {.m = 1, .n = 8192, .k = 8192}) ==
        Approx(8192 * step_latency + bytes / 1e12).epsilon(0.01));
}

// A weight gradient into fp32: the output is read and written, 8 bytes an element.
TEST_CASE("bytes of an accumulated product") {
  GemmShape const shape{.m = 1000, .n = 2000, .k = 3000, .output_bytes = 4, .accumulate = true};
  CHECK(bytes_of(shape) == Approx(2.0 * (1000.0 * 3000 + 3000.0 * 2000) + 8.0 * 1000 * 2000));
  CHECK(flops_of(shape) == Approx(2.0 * 1000 * 2000 * 3000));
}

// Half of that traffic stands behind the products: 0.5 * 8 * 1280 * 1280 bytes over 1e12.
TEST_CASE("an accumulated product waits for a part of its output") {
  KernelMachine machine = bare_machine();
  GemmShape shape{.m = 1280, .n = 1280, .k = 4096, .output_bytes = 4};
  machine.memory_rate = 1e12;
  double const memory = (2.0 * 2 * 1280 * 4096 + 8.0 * 1280 * 1280) / 1e12; // all bytes, beside the products
  double const power = 2.0 * 1280 * 1280 * 4096 / 1e15;
  shape.accumulate = true;
  double const beside = std::cbrt(std::pow(memory, 3) + std::pow(power, 3) + std::pow(power / boost, 3));
  CHECK(gemm_seconds(machine, shape) == Approx(4096 * step_latency + 0.5 * 8 * 1280 * 1280 / 1e12 + beside));
}

// Ten groups: nine more kernels begin 3 us later each, and the rate is 0.95 of it; batched products pay neither.
TEST_CASE("grouped and batched products") {
  GemmShape shape{.m = 1280, .n = 1280, .k = 4096, .groups = 10};
  double const power = 10 * 2.0 * 1280 * 1280 * 4096 / 1e15;
  CHECK(gemm_seconds(bare_machine(), shape) ==
        Approx(4096 * step_latency + 9 * 3e-6 + smooth(power, power / boost) / 0.95));
  shape.batched = true;
  CHECK(gemm_seconds(bare_machine(), shape) == Approx(4096 * step_latency + smooth(power, power / boost)));
}

// fp8, one scale a tensor: 3 kernels; 4 bytes read and 1 written at 1 / 1.4 of the rate. Blocks: 1 kernel, 2 + 1 bytes.
TEST_CASE("the cast of inputs") {
  KernelMachine machine = bare_machine();
  machine.memory_rate = 1e12;
  machine.quantize_fixed = 3e-6;
  CHECK(quantize_seconds(machine, NumberFormat::fp8, 1e6) == Approx(9e-6 + 5e6 * 1.4 / 1e12));
  CHECK(quantize_seconds(machine, NumberFormat::fp8_block, 1e6) == Approx(3e-6 + 3e6 * 1.4 / 1e12));
  CHECK(quantize_seconds(machine, NumberFormat::bf16, 1e6) == 0);
}

TEST_CASE("misaligned and slowed products") {
  KernelMachine machine = bare_machine();
  GemmShape shape{.m = 1280, .n = 1280, .k = 40960};
  double const product = gemm_seconds(machine, shape) - 40960 * step_latency;
  shape.aligned = false;
  CHECK(gemm_seconds(machine, shape) - 40960 * step_latency == Approx(2 * product));
  machine.clock = 0.5;
  shape.aligned = true;
  CHECK(gemm_seconds(machine, shape) - 40960 * step_latency == Approx(2 * product));
}

TEST_CASE("time never falls when a product grows") {
  KernelMachine const machine = real_machine();
  RandomShapes random;
  for (int i = 0; i < 20000; ++i) {
    GemmShape const shape = random.shape();
    double const seconds = gemm_seconds(machine, shape);
    for (std::int64_t GemmShape::*dimension : {&GemmShape::m, &GemmShape::n, &GemmShape::k, &GemmShape::groups}) {
      GemmShape larger = shape;
      larger.*dimension += random.size(300);
      if (larger.batched == shape.batched && (shape.groups > 1 || larger.groups == 1))
        CHECK(gemm_seconds(machine, larger) >= seconds * (1 - 1e-12));
    }
  }
}

// Whatever the tiles, no product is faster than the memory or the power allows, nor slower than the waves of one tile.
TEST_CASE("time lies between the limits") {
  KernelMachine const machine = real_machine();
  RandomShapes random;
  for (int i = 0; i < 20000; ++i) {
    GemmShape const shape = random.shape();
    double const power = flops_of(shape) / machine.rate[static_cast<std::size_t>(shape.format)];
    CHECK(gemm_seconds(machine, shape) >= machine.fixed + std::max(power, bytes_of(shape) / machine.memory_rate));
  }
}

// Twice the batch is never more than twice the time.
TEST_CASE("a product of twice the columns takes at most twice the time") {
  KernelMachine const machine = real_machine();
  RandomShapes random;
  for (int i = 0; i < 20000; ++i) {
    GemmShape shape = random.shape();
    double const seconds = gemm_seconds(machine, shape);
    shape.n *= 2;
    CHECK(gemm_seconds(machine, shape) <= 2 * seconds * (1 + 1e-12));
  }
}

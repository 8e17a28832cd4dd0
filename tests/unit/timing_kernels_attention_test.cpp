#include "tests/catch.hpp"

#include "timing/kernels/attention.hpp"

#include <cmath>
#include <random>

using namespace foreplan;

namespace {

KernelMachine bare_machine() {
  KernelMachine machine;
  machine.multiprocessors = 100;
  machine.peak = 1e15;
  return machine;
}

KernelMachine real_machine() {
  Chip chip;
  chip.bf16_peak = FlopsPerSecond(989.4e12);
  chip.memory_bandwidth = BytesPerSecond(3.35e12);
  chip.multiprocessors = 132;
  return kernel_machine(chip, {});
}

AttentionShape shape_of(std::int64_t sequences, std::int64_t length, std::int64_t heads, std::int64_t size) {
  return {.sequences = sequences,
          .length = length,
          .heads = heads,
          .kv_heads = heads,
          .key_size = size,
          .value_size = size};
}

} // namespace

// Without softmax: 4 d flops a score; causal, 32 blocks of 128 queries see 32 * 33 / 2 blocks of keys. The last 0.8 of the
// longest block, 4096 keys x 128 queries on one of 100 multiprocessors, run alone.
TEST_CASE("products of causal attention") {
  double const d = 128;
  double const all = 4 * d * 64 * (32.0 * 33 / 2) * 128 * 128 / 1e15;
  double const longest = 4 * d * 4096 * 128 / (1e15 / 100);
  CHECK(attention_forward_seconds(bare_machine(), shape_of(2, 4096, 32, 128)) == Approx(all + 0.8 * longest));
}

// The whole square has 32 * 32 blocks.
TEST_CASE("attention without a mask") {
  AttentionShape shape = shape_of(2, 4096, 32, 128);
  shape.causal = false;
  double const all = 4.0 * 128 * 64 * (32.0 * 32) * 128 * 128 / 1e15;
  double const longest = 4.0 * 128 * 4096 * 128 / (1e15 / 100);
  CHECK(attention_forward_seconds(bare_machine(), shape) == Approx(all + 0.8 * longest));
}

// Softmax of s channels beside products of d channels: sqrt(d^2 + s^2); backward 2.5 times the products, twice the softmax.
TEST_CASE("softmax runs beside the products") {
  KernelMachine machine = bare_machine();
  double const products = attention_forward_seconds(machine, shape_of(2, 4096, 32, 128));
  machine.attention_softmax = 96;
  double const forward = attention_forward_seconds(machine, shape_of(2, 4096, 32, 128));
  CHECK(forward == Approx(products * std::hypot(128, 96) / 128));
  CHECK(attention_backward_seconds(machine, shape_of(2, 4096, 32, 128)) ==
        Approx(products * std::hypot(2.5 * 128, 2 * 96) / 128));
}

TEST_CASE("heads are padded") {
  KernelMachine const machine = real_machine();
  CHECK(attention_forward_seconds(machine, shape_of(1, 2048, 32, 80)) ==
        attention_forward_seconds(machine, shape_of(1, 2048, 32, 128)));
  CHECK(attention_forward_seconds(machine, shape_of(1, 2048, 32, 40)) ==
        attention_forward_seconds(machine, shape_of(1, 2048, 32, 64)));
}

TEST_CASE("time never falls when attention grows") {
  KernelMachine const machine = real_machine();
  std::mt19937_64 engine(11);
  auto any = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(1, most)(engine); };
  for (int i = 0; i < 5000; ++i) {
    AttentionShape const shape = shape_of(any(16), any(40000), any(128), any(300));
    double const seconds = attention_forward_seconds(machine, shape);
    CHECK(attention_backward_seconds(machine, shape) > seconds);
    for (std::int64_t AttentionShape::*dimension :
         {&AttentionShape::sequences, &AttentionShape::length, &AttentionShape::heads, &AttentionShape::key_size}) {
      AttentionShape larger = shape;
      larger.*dimension += any(200);
      CHECK(attention_forward_seconds(machine, larger) >= seconds * (1 - 1e-12));
      CHECK(attention_backward_seconds(machine, larger) >= attention_backward_seconds(machine, shape) * (1 - 1e-12));
    }
    AttentionShape full = shape;
    full.causal = false;
    CHECK(attention_forward_seconds(machine, full) >= seconds);
  }
}

// FlashAttention-2 on A100, causal, 16384 tokens in all 2048 channels: 220 and 178 TFLOP/s forward and backward with heads of
// 128, 192 and 163 with heads of 64; in Triton 1.4 and 2 times as long (arXiv 2307.08691, section 4.1 and figures 5, 6).
// 2 s^2 channels flops forward, 2.5 times as many backward. The diagonal and the overhead of a block add 2.5 %.
TEST_CASE("FlashAttention in Triton takes as long as published") {
  Chip a100;
  a100.bf16_peak = FlopsPerSecond(312e12);
  a100.memory_bandwidth = BytesPerSecond(2.039e12);
  a100.multiprocessors = 108;
  KernelMachine const machine = kernel_machine(a100, {});
  double const flops = 2.0 * 16384 * 16384 * 2048;
  struct {
    std::int64_t size;
    double forward, backward;
  } const published[] = {{128, 220e12 / 1.4, 178e12 / 2}, {64, 192e12 / 1.4, 163e12 / 2}};
  for (auto const& row : published) {
    AttentionShape shape = shape_of(1, 16384, 2048 / row.size, row.size);
    shape.triton = true;
    CHECK(flops / attention_forward_seconds(machine, shape) == Approx(row.forward).epsilon(0.03));
    CHECK(2.5 * flops / attention_backward_seconds(machine, shape) == Approx(row.backward).epsilon(0.03));
  }
}

// Kernel times and demands a second on one core: the formulas on shapes, and whole demands of ops.
#include "cluster/read_profile.hpp"
#include "timing/kernels.hpp"
#include "timing/kernels/attention.hpp"
#include "timing/kernels/gemm.hpp"

#include <chrono>
#include <fmt/format.h>
#include <random>
#include <vector>

using namespace foreplan;

namespace {

// The best of five runs over all shapes, in millions a second. `time` returns seconds, whose sum keeps them alive.
template <class Shape, class Time>
void measure(std::string const& name, std::vector<Shape> const& shapes, Time time) {
  double best = 1e300;
  double sum = 0;
  for (int run = 0; run < 5; ++run) {
    auto const begin = std::chrono::steady_clock::now();
    for (Shape const& shape : shapes)
      sum += time(shape);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  fmt::print("{:<44} {:8.2f} M/s   (sum {:.3e} s)\n", name, static_cast<double>(shapes.size()) / best / 1e6, sum);
}

} // namespace

int main() {
  HardwareProfile const profile = read_profile(FOREPLAN_ROOT "/hardware_profiles/dgx-h100.json");
  KernelMachine const machine = kernel_machine(profile.chip, *profile.kernels);
  constexpr std::size_t count = 1 << 20;
  std::mt19937_64 engine(1);
  auto any = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(engine);
  };
  std::vector<GemmShape> products;
  std::vector<GemmShape> products_fp8;
  std::vector<AttentionShape> attentions;
  for (std::size_t i = 0; i < count; ++i) {
    products.push_back({.m = any(1, 32768), .n = any(64, 65536), .k = any(64, 32768)});
    products_fp8.push_back(products.back());
    products_fp8.back().format = NumberFormat::fp8_block;
    attentions.push_back({.sequences = any(1, 8),
                          .length = any(512, 32768),
                          .heads = any(1, 128),
                          .kv_heads = 8,
                          .key_size = 128,
                          .value_size = 128});
  }
  measure("products, 16 bits (12 tilings each)", products, [&](auto const& s) { return gemm_seconds(machine, s); });
  measure("products, fp8 in blocks (6 tilings each)", products_fp8,
          [&](auto const& s) { return gemm_seconds(machine, s); });
  measure("attention, forward", attentions, [&](auto const& s) { return attention_forward_seconds(machine, s); });

  Tensor x, weight, y;
  x.shape = {4096, 8192};
  weight.shape = {8192, 28672};
  y.shape = {4096, 28672};
  Operands const operands{{&x, &weight}, {&y}};
  Op op;
  op.kind = OpKind::linear_forward;
  measure("demand of an op (kernel_demand)", products, [&](auto const& s) {
    x.shape[0] = y.shape[0] = s.m;
    return kernel_demand(op, operands, profile, 1).memory_bandwidth_share;
  });
}

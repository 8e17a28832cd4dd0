#include "timing/kernels/gemm.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace foreplan {

namespace {

// Output tiles of the libraries' kernels, as powers of two.
struct Tile {
  int log2_rows;
  int log2_columns;
};
constexpr std::array<Tile, 6> tiles{{{8, 7}, {7, 8}, {7, 7}, {6, 7}, {7, 6}, {6, 6}}};

// Multiprocessors alone on the chip run faster than all of them within the power limit: the same in all fits (1.2-1.6
// do equally well).
constexpr double boost = 1.4;
// Kernels that cut k into parts add them at the end: one more exchange between blocks.
constexpr double split_latency = 2e-6;
// The next kernel of a grouped product begins this much later; the groups' kernels fill 0.95 of the rate.
constexpr double group_latency = 3e-6;
constexpr double group_rate = 0.95;
// Casts run at this fraction of the memory rate: 1 / 1.34 to 1 / 1.79 in the fits of Hopper and Blackwell.
constexpr double quantize_rate = 1 / 1.4;
// Contiguous dimensions that are not a multiple of 16 bytes cannot use the wide loads of tensor cores. Prior: head
// sizes of 150 and 450 cost 23 to 37 % of a step.
constexpr double misaligned_rate = 0.5;

// Whole waves wait for their last tile; persistent kernels cut the rest along k among the multiprocessors (stream-K). Share
// of the latter: 0.4 to 0.7 fit best from A100 to GB200 (with 1 the A100 is worse).
constexpr double streamed = 0.7;
// Of the traffic of an output that is added to, what stands behind the products: 0.3 to 0.6 in the fits of B200's training
// products.
constexpr double behind = 0.5;

double whole(double count) {
  auto const floor = static_cast<double>(static_cast<std::int64_t>(count));
  return floor < count ? floor + 1 : floor;
}

double waves_of(double tiles_a_multiprocessor) {
  return (1 - streamed) * whole(tiles_a_multiprocessor) + streamed * std::max(tiles_a_multiprocessor, 1.0);
}

// Seconds of the waves of the best tile.
double tile_seconds(KernelMachine const& machine, GemmShape const& shape, double rate, double epilogue) {
  double const per_multiprocessor = rate * boost / machine.multiprocessors;
  auto const k = static_cast<double>(shape.k);
  bool const split = can_split(shape.format);
  double best = INFINITY;
  for (Tile const tile : tiles) {
    std::int64_t const rows = (shape.m + (std::int64_t{1} << tile.log2_rows) - 1) >> tile.log2_rows;
    std::int64_t const columns = (shape.n + (std::int64_t{1} << tile.log2_columns) - 1) >> tile.log2_columns;
    auto const height = static_cast<double>(1 << tile.log2_rows);
    auto const width = static_cast<double>(1 << tile.log2_columns);
    double const waves = static_cast<double>(rows * columns * shape.groups) / machine.multiprocessors;
    double const step = (2 * height * width + 2 * machine.tile_load * (height + width)) / per_multiprocessor;
    best = std::min(best, waves_of(waves) * step * (k + epilogue));
    if (split)
      best = std::min(best, waves_of(waves * split_parts) * step * (k / split_parts + epilogue) + split_latency);
  }
  return best;
}

double cube(double x) { return x * x * x; }

} // namespace

double flops_of(GemmShape const& shape) {
  return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k) *
         static_cast<double>(shape.groups);
}

namespace {

double output_bytes(GemmShape const& shape) {
  return static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.groups) *
         shape.output_bytes * (shape.accumulate ? 2 : 1);
}

} // namespace

double bytes_of(GemmShape const& shape) {
  auto const inputs = static_cast<double>(shape.m + shape.n) * static_cast<double>(shape.k);
  return inputs * bytes_of(shape.format) * static_cast<double>(shape.groups) + output_bytes(shape);
}

namespace {

bool is_grouped(GemmShape const& shape) { return shape.groups > 1 && !shape.batched; }

} // namespace

GemmLimits gemm_limits(KernelMachine const& machine, GemmShape const& shape) {
  auto const format = static_cast<std::size_t>(shape.format);
  double const rate = machine.rate[format] * machine.clock * (shape.aligned ? 1 : misaligned_rate) *
                      (is_grouped(shape) ? group_rate : 1);
  return {.memory = bytes_of(shape) / machine.memory_rate,
          .power = flops_of(shape) / rate,
          .tiles = tile_seconds(machine, shape, rate, machine.epilogue[format])};
}

double modelled_gemm_seconds(KernelMachine const& machine, GemmShape const& shape) {
  GemmLimits const limits = gemm_limits(machine, shape);
  double const groups = is_grouped(shape) ? static_cast<double>(shape.groups - 1) * group_latency : 0;
  double const added = shape.accumulate ? behind * output_bytes(shape) / machine.memory_rate : 0;
  return machine.fixed + groups + static_cast<double>(shape.k) * step_latency + added +
         std::cbrt(cube(limits.memory) + cube(limits.power) + cube(limits.tiles));
}

double gemm_seconds(KernelMachine const& machine, GemmShape const& shape) {
  double const seconds = modelled_gemm_seconds(machine, shape);
  if (machine.correction == nullptr || shape.groups > 1)
    return seconds;
  return seconds *
         std::exp(log_correction(*machine.correction, shape.format, shape.accumulate, static_cast<double>(shape.m),
                                 static_cast<double>(shape.n), static_cast<double>(shape.k)));
}

double quantize_seconds(KernelMachine const& machine, NumberFormat format, double elements) {
  int kernels = 1;
  double reads = 2; // bytes of an element
  switch (format) {
    case NumberFormat::fp32:
    case NumberFormat::tf32:
    case NumberFormat::bf16: return 0;
    case NumberFormat::fp8:
      kernels = 3;
      reads = 4;
      break;
    case NumberFormat::nvfp4: // the scales are then laid out for the product
    case NumberFormat::int8: kernels = 2; break;
    case NumberFormat::fp8_row:
    case NumberFormat::fp8_block:
    case NumberFormat::mxfp8: break;
  }
  return kernels * machine.quantize_fixed +
         elements * (reads + bytes_of(format)) / (machine.memory_rate * quantize_rate);
}

} // namespace foreplan

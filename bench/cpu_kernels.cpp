// CPU kernels against what the machine can do: STREAM's triad for those bound by memory, oneDNN's products for attention.
// Usage: cpu_kernels [threads, default all]. Each figure is the best of several runs.
#include "program/amounts.hpp"
#include "validate/devices/backend.hpp"
#include "validate/devices/cpu/gemm.hpp"
#include "validate/devices/cpu/quantize.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

using namespace foreplan;

namespace {

template <class Work>
double seconds(int repeats, Work const& work) {
  double best = 1e30;
  for (int i = 0; i < repeats + 1; ++i) { // the first one warms up
    auto const start = std::chrono::steady_clock::now();
    work();
    std::chrono::duration<double> const taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, i == 0 ? best : taken.count());
  }
  return best;
}

constexpr std::int64_t elements = std::int64_t{1} << 25; // 128 MiB of fp32: far more than any cache

using Floats = std::vector<float>;

// McCalpin's triad a = b + q c, counted as 3 * 4 bytes an element.
double triad_rate() {
  Floats a(elements, 1), b(elements, 2), c(elements, 3);
  double const best = seconds(10, [&] {
#pragma omp parallel for simd
    for (std::int64_t i = 0; i < elements; ++i)
      a[static_cast<std::size_t>(i)] = b[static_cast<std::size_t>(i)] + 3 * c[static_cast<std::size_t>(i)];
  });
  return 12.0 * elements / best;
}

void report(std::string const& name, double rate, double reference, std::string const& unit, double least) {
  fmt::print("{:34} {:8.1f} {:8} {:5.1f} % of the reference{}\n", name, rate / 1e9, unit, 100 * rate / reference,
             least == 0                  ? ""
             : rate >= least * reference ? fmt::format(", at least {:.0f} asked", 100 * least)
                                         : fmt::format(", BELOW the {:.0f} asked", 100 * least));
}

void quantization(double triad) {
  Floats x(elements, 0.5F);
  for (auto const& [format, name] : {std::pair(QuantizedFormat::int8, "int8"), std::pair(QuantizedFormat::int4, "int4"),
                                     std::pair(QuantizedFormat::fp8_e4m3, "fp8")})
    for (DType dtype : {DType::fp32, DType::bf16}) {
      QuantizedLayout const layout{format, elements, 128};
      std::vector<std::uint8_t> codes(static_cast<std::size_t>(payload_bytes(layout)));
      std::vector<float> scales(static_cast<std::size_t>(group_count(layout)));
      auto const bytes = static_cast<double>(elements * size_of(dtype) + payload_bytes(layout) +
                                             4 * group_count(layout));
      double const forth = seconds(5, [&] { cpu::quantize(x.data(), dtype, layout, {codes.data(), scales.data()}); });
      double const back = seconds(5, [&] { cpu::dequantize({codes.data(), scales.data()}, layout, x.data(), dtype); });
      report(fmt::format("quantize {} to {}", to_string(dtype), name), bytes / forth, triad, "GB/s", 0.6);
      report(fmt::format("dequantize {} to {}", name, to_string(dtype)), bytes / back, triad, "GB/s", 0.6);
    }
}

// An op on operands of these shapes: tensors 0.. reads, then writes; `aliases`: writes that are reads (by position).
struct Work {
  std::vector<Tensor> tensors;
  std::vector<Floats> memory;
  std::vector<Operand> reads, writes;
};

Tensor tensor(std::vector<std::int64_t> shape, DType dtype) {
  Tensor result;
  result.shape = std::move(shape);
  result.dtype = dtype;
  return result;
}

Work work_of(std::vector<Tensor> reads, std::vector<Tensor> writes, std::vector<int> const& aliases = {}) {
  Work work;
  work.tensors = std::move(reads);
  std::size_t const count = work.tensors.size();
  work.tensors.insert(work.tensors.end(), writes.begin(), writes.end());
  for (std::size_t i = 0; i < work.tensors.size(); ++i) {
    work.memory.emplace_back(static_cast<std::size_t>(work.tensors[i].elements()), 0.0F);
    (i < count ? work.reads : work.writes).push_back({work.memory.back().data(), &work.tensors[i]});
  }
  for (std::size_t i = 0; i < aliases.size(); ++i)
    if (aliases[i] >= 0)
      work.writes[i] = work.reads[static_cast<std::size_t>(aliases[i])];
  return work;
}

double seconds(Op const& op, Work const& work, int threads) {
  KernelContext const context{.coordinate = {}, .gradient_clip = 1, .training = {}, .step = 1};
  return seconds(5, [&] { run_kernel(op, work.reads, work.writes, context, threads); });
}

double bytes_of(Op const& op, Work const& work) {
  Operands operands;
  for (Operand const& operand : work.reads)
    operands.reads.push_back(operand.tensor);
  for (Operand const& operand : work.writes)
    operands.writes.push_back(operand.tensor);
  return amount_of(op, operands).bytes.value();
}

void memory_bound(double triad, int threads) {
  Op op;
  op.kind = OpKind::adam;
  constexpr std::int64_t n = elements;
  Tensor const single = tensor({n}, DType::fp32);
  Work const adam = work_of({single, tensor({1}, DType::fp32), single, single, single},
                            {single, single, single, tensor({n}, DType::bf16)}, {2, 3, 4});
  report("Adam, bf16 parameters", bytes_of(op, adam) / seconds(op, adam, threads), triad, "GB/s", 0.6);
  op.kind = OpKind::norm_forward;
  Tensor const wide = tensor({n / 4096, 4096}, DType::bf16), weight = tensor({4096}, DType::bf16);
  Work const norm = work_of({wide, weight}, {wide});
  report("rms_norm, bf16", bytes_of(op, norm) / seconds(op, norm, threads), triad, "GB/s", 0);
  op.kind = OpKind::swiglu_forward;
  Work const swiglu = work_of({tensor({n / 8192, 2, 4096}, DType::bf16)}, {tensor({n / 8192, 4096}, DType::bf16)});
  report("swiglu, bf16", bytes_of(op, swiglu) / seconds(op, swiglu, threads), triad, "GB/s", 0);
  op.kind = OpKind::swiglu_backward;
  Work const backward = work_of({tensor({n / 8192, 2, 4096}, DType::bf16), tensor({n / 8192, 4096}, DType::bf16)},
                                {tensor({n / 8192, 2, 4096}, DType::bf16)});
  report("swiglu backward, bf16", bytes_of(op, backward) / seconds(op, backward, threads), triad, "GB/s", 0);
  op.kind = OpKind::gelu_forward;
  Work const gelu = work_of({wide}, {wide});
  report("gelu, bf16", bytes_of(op, gelu) / seconds(op, gelu, threads), triad, "GB/s", 0);
  op.kind = OpKind::add;
  Work const add = work_of({wide, wide}, {wide});
  report("residual, bf16", bytes_of(op, add) / seconds(op, add, threads), triad, "GB/s", 0);
  op.kind = OpKind::cast;
  Work const cast = work_of({wide}, {tensor({n / 4096, 4096}, DType::fp32)});
  report("cast bf16 to fp32", bytes_of(op, cast) / seconds(op, cast, threads), triad, "GB/s", 0);
}

void attention(int threads) {
  constexpr std::int64_t s = 2048, heads = 8;
  for (DType dtype : {DType::bf16, DType::fp32})
    for (std::int64_t d : {64, 128}) {
      Floats a(s * s), b(s * s), c(s * s);
      cpu::Matrix const left{a.data(), dtype, s, s, s}, right{b.data(), dtype, s, s, s}, out{c.data(), dtype, s, s, s};
      double const product = 2.0 * s * s * s / seconds(5, [&] { cpu::multiply(left, right, out); });
      fmt::print("{:34} {:8.1f} Gflop/s\n", fmt::format("product 2048 cubed, {}", to_string(dtype)), product / 1e9);
      Op op;
      op.sequence_length = s;
      op.kind = OpKind::attention_forward;
      Tensor const qkv = tensor({s, heads, 3, d}, dtype), o = tensor({s, heads, d}, dtype);
      Tensor const lse = tensor({s, heads}, DType::fp32);
      double const flops = 2.0 * s * s * heads * static_cast<double>(d); // causal: half of the square, two products
      Work const forward = work_of({qkv}, {o, lse});
      report(fmt::format("attention, d = {}, {}", d, to_string(dtype)), flops / seconds(op, forward, threads), product,
             "Gflop/s", 0.5);
      op.kind = OpKind::attention_backward;
      Work const backward = work_of({qkv, o, lse, o}, {qkv});
      report(fmt::format("attention backward, d = {}, {}", d, to_string(dtype)),
             2.5 * flops / seconds(op, backward, threads), product, "Gflop/s", 0.5);
    }
}

} // namespace

int main(int argc, char** argv) {
  int const threads = argc > 1 ? std::atoi(argv[1]) : omp_get_max_threads();
  omp_set_num_threads(threads);
  double const triad = triad_rate();
  fmt::print("{} threads\n{:34} {:8.1f} GB/s\n", threads, "STREAM triad", triad / 1e9);
  memory_bound(triad, threads);
  quantization(triad);
  attention(threads);
}

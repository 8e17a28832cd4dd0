#include "timing/kernels.hpp"

#include "timing/kernels/attention.hpp"
#include "timing/kernels/gemm.hpp"

#include <algorithm>

namespace foreplan {

namespace {

NumberFormat format_of(DType dtype) {
  switch (dtype) {
    case DType::fp32: return NumberFormat::fp32;
    case DType::bf16:
    case DType::fp16: return NumberFormat::bf16;
    default: return NumberFormat::int8;
  }
}

std::int64_t rows(Tensor const* tensor) { return tensor->shape[0]; }
std::int64_t columns(Tensor const* tensor) { return tensor->elements() / rows(tensor); }

// Inner dimensions of which the bytes are a multiple of 16.
bool is_aligned(DType dtype, std::int64_t a, std::int64_t b) {
  constexpr std::int64_t access = 16;
  return a * size_of(dtype) % access == 0 && b * size_of(dtype) % access == 0;
}

} // namespace

GemmShape linear_shape(Op const& op, Operands const& o) {
  DType const dtype = o.reads[0]->dtype;
  GemmShape shape{.format = format_of(dtype), .output_bytes = static_cast<std::int8_t>(size_of(o.writes[0]->dtype))};
  std::int64_t const tokens = rows(o.reads[0]);
  if (op.kind == OpKind::linear_weight_gradient) { // tokens are what is summed over
    shape.m = columns(o.reads[1]);
    shape.n = columns(o.reads[0]);
    shape.k = tokens;
    shape.accumulate = o.reads.size() == 2 + o.writes.size();
    shape.aligned = is_aligned(dtype, shape.m, shape.n);
    return shape;
  }
  shape.m = tokens;
  shape.n = columns(o.writes[0]);
  shape.k = columns(o.reads[0]);
  shape.aligned = is_aligned(dtype, shape.n, shape.k);
  return shape;
}

namespace {

// Unfused attention: one product a head and sequence. `scores` is [sequences, heads, s, s], `size` the head's.
GemmShape batched_shape(Tensor const* scores, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t size) {
  std::int64_t const s = scores->shape.back();
  return {.m = m,
          .n = n,
          .k = k,
          .groups = scores->elements() / (s * s),
          .format = format_of(scores->dtype),
          .output_bytes = static_cast<std::int8_t>(size_of(scores->dtype)),
          .batched = true,
          .aligned = is_aligned(scores->dtype, size, s)};
}

double product_seconds(KernelMachine const& machine, Op const& op, Operands const& o) {
  std::int64_t const s = op.sequence_length;
  std::int64_t const size = o.reads[0]->shape.back(); // of the head, where qkv stands first
  switch (op.kind) {
    case OpKind::attention_scores: return gemm_seconds(machine, batched_shape(o.writes[0], s, s, size, size));
    case OpKind::attention_context: {
      std::int64_t const d = o.reads[1]->shape.back();
      return gemm_seconds(machine, batched_shape(o.reads[0], s, d, s, d));
    }
    case OpKind::attention_context_backward: {
      std::int64_t const d = o.reads[1]->shape.back();
      return gemm_seconds(machine, batched_shape(o.reads[0], s, s, d, d)) +
             gemm_seconds(machine, batched_shape(o.reads[0], s, d, s, d));
    }
    case OpKind::attention_scores_backward:
      return 2 * gemm_seconds(machine, batched_shape(o.reads[1], s, size, s, size));
    default: return gemm_seconds(machine, linear_shape(op, o));
  }
}

// qkv is [tokens, kv heads, queries a kv head + 2, head size].
AttentionShape attention_shape(Op const& op, Operands const& o) {
  std::vector<std::int64_t> const& qkv = o.reads[0]->shape;
  std::int64_t const size = qkv.back();
  std::int64_t const shard = op.sequence_length / op.context_shards;
  bool const has_keys = o.reads.size() > (op.kind == OpKind::attention_forward ? 1U : 4U); // tensors of their own
  std::int64_t const queries = has_keys ? shard : op.sequence_length;
  return {.sequences = qkv[0] / queries,
          .length = queries,
          .keys = op.hop < 0 ? op.sequence_length : shard,
          .heads = qkv[1] * (qkv[2] - 2),
          .kv_heads = qkv[1],
          .key_size = size,
          .value_size = size,
          .portable = op.portable,
          .triton = op.triton};
}

struct Duration {
  double seconds = 0;
  kernel::Class kind = kernel::memory_bound;
};

Duration fitted_duration(HardwareProfile const& profile, Op const& op, Operands const& operands,
                         double memory_seconds) {
  KernelMachine const machine = kernel_machine(profile.chip, *profile.kernels);
  switch (kernel_class(op.kind)) {
    case KernelClass::gemm: {
      NumberFormat const format = format_of(operands.reads[0]->dtype);
      return {product_seconds(machine, op, operands), bytes_of(format) < 2 ? kernel::gemm_8bit : kernel::gemm_16bit};
    }
    case KernelClass::attention: {
      AttentionShape const shape = attention_shape(op, operands);
      if (op.kind == OpKind::attention_forward)
        return {attention_forward_seconds(machine, shape), kernel::attention_forward};
      return {attention_backward_seconds(machine, shape), kernel::attention_backward};
    }
    default: return {memory_seconds, kernel::memory_bound};
  }
}

FlopsPerSecond product_rate(Op const& op, Operands const& operands, HardwareProfile const& profile) {
  bool const single = operands.reads[0]->dtype == DType::fp32;
  FlopsPerSecond const peak = single ? profile.chip.fp32_peak : profile.chip.bf16_peak;
  return peak *
         (kernel_class(op.kind) == KernelClass::attention ? profile.efficiency.attention : profile.efficiency.gemm);
}

} // namespace

Demand kernel_demand(Op const& op, Operands const& operands, HardwareProfile const& profile, double device_speed) {
  Demand demand;
  if (kernel_class(op.kind) == KernelClass::none) {
    demand.device = ComputeDemand{};
    return demand;
  }
  Amount const amount = amount_of(op, operands);
  Seconds busy = amount.bytes / (profile.chip.memory_bandwidth * profile.efficiency.memory_bound) +
                 profile.kernel_fixed;
  OpCost const* const measured = profile.ops
                                     ? find(*profile.ops, to_string(op.kind), to_string(working_dtype(operands)))
                                     : nullptr;
  if (measured != nullptr) {
    busy = Seconds(measured->seconds(amount.flops.value(), amount.bytes.value())) + profile.kernel_fixed;
    demand.band = measured->band;
    demand.evidence = profile.ops->evidence;
  } else if (profile.kernels) {
    Duration const duration = fitted_duration(profile, op, operands, busy.value());
    busy = Seconds(duration.seconds);
    demand.band = profile.kernels->band[duration.kind];
    demand.evidence = Evidence::fitted;
  } else if (amount.flops > Flops(0)) {
    busy = std::max(busy, amount.flops / product_rate(op, operands, profile) + profile.kernel_fixed);
  }
  Seconds const alone = busy / device_speed;
  demand.issue = demand.lead = profile.issue * op.launches;
  demand.device = ComputeDemand{alone};
  double const share = amount.bytes / alone / profile.chip.memory_bandwidth;
  demand.memory_bandwidth_share = measured != nullptr ? std::min(1.0, share) : share; // caches can be faster
  return demand;
}

} // namespace foreplan

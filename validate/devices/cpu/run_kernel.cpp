#include "validate/devices/cpu/kernels.hpp"
#include "validate/devices/cpu/quantize.hpp"

#include "validate/devices/reference_kernels.hpp"

#include <omp.h>

#include <algorithm>

namespace foreplan {
namespace {

bool holds_fp16(std::span<Operand const> operands) {
  return std::ranges::any_of(operands, [](Operand const& operand) { return operand.tensor->dtype == DType::fp16; });
}

// Tokens that are not in the order of their positions, or keys and values from elsewhere.
bool splits_context(Op const& op, std::span<Operand const> reads) {
  return op.context_shards > 1 || (op.kind == OpKind::attention_forward && reads.size() > 1) ||
         (op.kind == OpKind::attention_backward && reads.size() > 4);
}

} // namespace

// What the kernels of this folder do not do yet runs as in the interpreter, right and slow: fp16 (for which oneDNN has no
// products on these processors), context parallelism, and kinds of ops that are newer than this file.
void run_kernel(Op const& op, std::span<Operand const> reads, std::span<Operand const> writes,
                KernelContext const& context, int threads) {
  if (holds_fp16(reads) || holds_fp16(writes) || splits_context(op, reads))
    return run_reference_kernel(Storage::as_planned, op, reads, writes, context);
  if (op.context_shards > 1) // these kernels know one rank's tokens as a whole sequence
    return run_reference_kernel(Storage::as_planned, op, reads, writes, context);
  omp_set_num_threads(threads); // of the calling thread's loops and products
  switch (op.kind) {
    case OpKind::embedding_forward: return cpu::embedding_forward(reads, writes, context);
    case OpKind::embedding_backward: return cpu::embedding_backward(reads, writes, context);
    case OpKind::add_positions: return cpu::add_positions(op, reads, writes, context);
    case OpKind::position_gradient: return cpu::position_gradient(op, reads, writes, context);
    case OpKind::loss_maximum: return cpu::loss_maximum(reads, writes);
    case OpKind::loss_sums: return cpu::loss_sums(reads, writes, context);
    case OpKind::loss_forward: return cpu::loss_forward(op, reads, writes);
    case OpKind::loss_backward: return cpu::loss_backward(op, reads, writes, context);
    case OpKind::norm_forward: return cpu::norm_forward(reads, writes);
    case OpKind::norm_backward: return cpu::norm_backward(reads, writes);
    case OpKind::linear_forward: return cpu::linear_forward(op, reads, writes);
    case OpKind::linear_input_gradient: return cpu::linear_input_gradient(op, reads, writes);
    case OpKind::linear_weight_gradient: return cpu::linear_weight_gradient(op, reads, writes);
    case OpKind::accumulate: return cpu::add(reads, writes);
    case OpKind::rope_forward: return cpu::rope(op, reads, writes, context, 1);
    case OpKind::rope_backward: return cpu::rope(op, reads, writes, context, -1);
    case OpKind::attention_forward: return cpu::attention_forward(op, reads, writes);
    case OpKind::attention_backward: return cpu::attention_backward(op, reads, writes);
    case OpKind::attention_scores: return cpu::attention_scores(op, reads, writes);
    case OpKind::attention_softmax: return cpu::attention_softmax(op, reads, writes);
    case OpKind::attention_context: return cpu::attention_context(op, reads, writes);
    case OpKind::attention_context_backward: return cpu::attention_context_backward(op, reads, writes);
    case OpKind::attention_softmax_backward: return cpu::attention_softmax_backward(op, reads, writes);
    case OpKind::attention_scores_backward: return cpu::attention_scores_backward(op, reads, writes);
    case OpKind::gelu_forward: return cpu::gelu_forward(reads, writes);
    case OpKind::gelu_backward: return cpu::gelu_backward(reads, writes);
    case OpKind::swiglu_forward: return cpu::swiglu_forward(reads, writes);
    case OpKind::swiglu_backward: return cpu::swiglu_backward(reads, writes);
    case OpKind::add: return cpu::add(reads, writes);
    case OpKind::bias_add: return cpu::bias_add(reads, writes);
    case OpKind::bias_gradient: return cpu::bias_gradient(reads[0], writes[0]);
    case OpKind::dropout_forward: return cpu::dropout_forward(reads, writes);
    case OpKind::dropout_backward: return cpu::dropout_backward(reads, writes);
    case OpKind::dropout_mask: return cpu::fill_ones(writes[0]);
    case OpKind::zero_fill: return cpu::zero_fill(writes[0]);
    case OpKind::cast:
    case OpKind::copy: return cpu::cast(reads[0], writes[0]);
    case OpKind::quantize: return cpu::quantize(op, reads, writes);
    case OpKind::dequantize: return cpu::dequantize(op, reads, writes);
    case OpKind::requantize: return cpu::requantize(op, reads, writes);
    case OpKind::norm_squared: return cpu::norm_squared(op, reads, writes);
    case OpKind::adam: return cpu::adam(op, reads, writes, context);
    case OpKind::take_keys_values:
    case OpKind::put_keys_values:
    case OpKind::attention_merge:
    case OpKind::pack_heads:
    case OpKind::unpack_heads: return run_reference_kernel(Storage::as_planned, op, reads, writes, context);
    case OpKind::all_reduce:
    case OpKind::all_gather:
    case OpKind::reduce_scatter:
    case OpKind::all_to_all:
    case OpKind::ring_shift:
    case OpKind::send:
    case OpKind::receive: cpu::refuse(op, "communication is no kernel");
    case OpKind::wait: return;
    default: // a kind that has no kernel of its own yet: right, and slow
      return run_reference_kernel(Storage::as_planned, op, reads, writes, context);
  }
}

} // namespace foreplan

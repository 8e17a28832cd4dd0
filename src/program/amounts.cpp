#include "program/amounts.hpp"

namespace foreplan {

std::string_view to_string(KernelClass kernel_class) {
  switch (kernel_class) {
    case KernelClass::gemm: return "gemm";
    case KernelClass::attention: return "attention";
    case KernelClass::memory_bound: return "memory bound";
    case KernelClass::none: return "none";
  }
  return "?";
}

KernelClass kernel_class(OpKind kind) {
  switch (kind) {
    case OpKind::linear_forward:
    case OpKind::linear_input_gradient:
    case OpKind::linear_weight_gradient:
    case OpKind::attention_scores:
    case OpKind::attention_context:
    case OpKind::attention_context_backward:
    case OpKind::attention_scores_backward: return KernelClass::gemm;
    case OpKind::attention_forward:
    case OpKind::attention_backward: return KernelClass::attention;
    case OpKind::wait: return KernelClass::none;
    default: return is_communication(kind) ? KernelClass::none : KernelClass::memory_bound;
  }
}

namespace {

double elements(Tensor const* tensor) { return static_cast<double>(tensor->elements()); }
double rows(Tensor const* tensor) { return static_cast<double>(tensor->shape[0]); }
double bytes(Tensor const* tensor) { return elements(tensor) * static_cast<double>(size_of(tensor->dtype)); }

double flops(Op const& op, Operands const& o) {
  double const s = static_cast<double>(op.sequence_length);
  switch (op.kind) {
    // rows x in times in x out: 2 * rows * in * out
    case OpKind::linear_forward:
    case OpKind::linear_input_gradient: return 2 * elements(o.reads[0]) * elements(o.writes[0]) / rows(o.reads[0]);
    case OpKind::linear_weight_gradient: return 2 * elements(o.reads[0]) * elements(o.reads[1]) / rows(o.reads[0]);
    // o has tokens * heads * d elements; two products over half of s keys each, backward five
    case OpKind::attention_forward: return 2 * elements(o.writes[0]) * s;
    case OpKind::attention_backward: return 5 * elements(o.reads[1]) * s;
    // sequences * heads * s * s elements, d deep; not halved
    case OpKind::attention_scores: return 2 * elements(o.writes[0]) * static_cast<double>(o.reads[0]->shape.back());
    case OpKind::attention_context: return 2 * elements(o.reads[0]) * static_cast<double>(o.reads[1]->shape.back());
    case OpKind::attention_context_backward:
      return 4 * elements(o.reads[0]) * static_cast<double>(o.reads[1]->shape.back());
    case OpKind::attention_scores_backward:
      return 4 * elements(o.reads[1]) * static_cast<double>(o.reads[0]->shape.back());
    default: return 0;
  }
}

// Tables are touched one row a token, not as a whole.
double table_bytes(Op const& op, Operands const& o) {
  switch (op.kind) {
    case OpKind::embedding_forward: return 2 * bytes(o.writes[0]);
    case OpKind::add_positions: return 3 * bytes(o.writes[0]);
    default: // embedding_backward, position_gradient: read dy, read and write the rows
      return bytes(o.reads[op.kind == OpKind::embedding_backward ? 1 : 0]) +
             2 * elements(o.reads[op.kind == OpKind::embedding_backward ? 1 : 0]) *
                 static_cast<double>(size_of(o.writes[0]->dtype));
  }
}

} // namespace

Amount amount_of(Op const& op, Operands const& operands) {
  switch (op.kind) {
    case OpKind::embedding_forward:
    case OpKind::add_positions:
    case OpKind::embedding_backward:
    case OpKind::position_gradient: return {Flops(0), Bytes(table_bytes(op, operands))};
    default: break;
  }
  double moved = 0;
  for (Tensor const* tensor : operands.reads)
    moved += bytes(tensor);
  for (Tensor const* tensor : operands.writes)
    moved += bytes(tensor);
  return {Flops(flops(op, operands)), Bytes(moved)};
}

DType working_dtype(Operands const& operands) {
  DType result = DType::fp32;
  for (std::vector<Tensor const*> const* tensors : {&operands.reads, &operands.writes})
    for (Tensor const* tensor : *tensors)
      if (tensor->dtype == DType::bf16 || tensor->dtype == DType::fp16)
        result = tensor->dtype;
  return result;
}

Bytes wire_bytes(Op const& op, Operands const& operands, int members) {
  double const others = static_cast<double>(members - 1) / members;
  switch (op.kind) {
    case OpKind::all_reduce: return Bytes(2 * others * bytes(operands.reads[0]));
    case OpKind::reduce_scatter: return Bytes(others * bytes(operands.reads[0]));
    case OpKind::all_gather: return Bytes(others * bytes(operands.writes[0]));
    case OpKind::send: return Bytes(bytes(operands.reads[0]));
    case OpKind::receive: return Bytes(bytes(operands.writes[0]));
    default: return Bytes(0);
  }
}

} // namespace foreplan

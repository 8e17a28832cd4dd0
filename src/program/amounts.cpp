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

bool has_keys_values(Op const& op) {
  return (op.kind == OpKind::attention_forward && op.reads.size() > 1) ||
         (op.kind == OpKind::attention_backward && op.reads.size() > 4);
}

double flops(Op const& op, Operands const& o) {
  // keys of a sequence that attention walks over
  double const s = static_cast<double>(op.sequence_length) / (op.hop < 0 ? 1 : op.context_shards);
  switch (op.kind) {
    // rows x in times in x out: 2 * rows * in * out
    case OpKind::linear_forward:
    case OpKind::linear_input_gradient: return 2 * elements(o.reads[0]) * elements(o.writes[0]) / rows(o.reads[0]);
    case OpKind::linear_weight_gradient: return 2 * elements(o.reads[0]) * elements(o.reads[1]) / rows(o.reads[0]);
    // o has tokens * heads * d elements; two products over half of s keys each, backward five. A rank's balanced chunks
    // see half of all keys, and of another rank's either half or all with half of the queries.
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

// Where keys and values have their own tensor, of qkv only the queries are touched; copies touch what they copy.
double parts_bytes(Op const& op, Operands const& o) {
  auto const queries = [](Tensor const* qkv) {
    double const members = static_cast<double>(qkv->shape[2]);
    return bytes(qkv) * (members - 2) / members;
  };
  switch (op.kind) {
    case OpKind::take_keys_values: return 2 * bytes(o.writes[0]);
    case OpKind::put_keys_values: return 2 * bytes(o.reads[0]);
    case OpKind::attention_forward:
      return queries(o.reads[0]) + bytes(o.reads[1]) + bytes(o.writes[0]) + bytes(o.writes[1]);
    default: { // attention_backward; added to the queries' gradient, or written beside zeros
      double const dqkv = o.reads.size() > 5 ? 2 * queries(o.writes[0]) : bytes(o.writes[0]);
      return queries(o.reads[0]) + bytes(o.reads[1]) + bytes(o.reads[2]) + bytes(o.reads[3]) + bytes(o.reads[4]) +
             dqkv + bytes(o.writes[1]);
    }
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
    case OpKind::take_keys_values:
    case OpKind::put_keys_values: return {Flops(0), Bytes(parts_bytes(op, operands))};
    default: break;
  }
  if (has_keys_values(op))
    return {Flops(flops(op, operands)), Bytes(parts_bytes(op, operands))};
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
    case OpKind::reduce_scatter:
    case OpKind::all_to_all: return Bytes(others * bytes(operands.reads[0]));
    case OpKind::all_gather: return Bytes(others * bytes(operands.writes[0]));
    case OpKind::ring_shift:
    case OpKind::send: return Bytes(bytes(operands.reads[0]));
    case OpKind::receive: return Bytes(bytes(operands.writes[0]));
    default: return Bytes(0);
  }
}

} // namespace foreplan

// How much work an op is: from its kind and the shapes of its tensors, in this one place.
#pragma once

#include "program/placement_rules.hpp"
#include "program/program.hpp"
#include "units/quantity.hpp"

namespace foreplan {

enum class KernelClass : std::uint8_t { gemm, attention, memory_bound, none };
std::string_view to_string(KernelClass kernel_class);
KernelClass kernel_class(OpKind kind); // none: communication, wait

struct Amount {
  Flops
      flops; // of matrix products, executed (causal attention: half of the square; its backward 2.5 times its forward)
  Bytes bytes; // read and written
};
Amount amount_of(Op const& op, Operands const& operands);

// The dtype that an op computes in: that of its narrowest floating-point operand.
DType working_dtype(Operands const& operands);

// Bytes that each member sends in a collective (notes: algorithms.md, "bytes on the wire"), or a transfer moves.
Bytes wire_bytes(Op const& op, Operands const& operands, int members);

// Operands of an op, by position.
template <class Owner>
Operands operands_of(Owner const& owner, Op const& op) {
  Operands operands;
  operands.reads.reserve(op.reads.size());
  operands.writes.reserve(op.writes.size());
  for (TensorId id : op.reads)
    operands.reads.push_back(&owner[id]);
  for (TensorId id : op.writes)
    operands.writes.push_back(&owner[id]);
  return operands;
}

} // namespace foreplan

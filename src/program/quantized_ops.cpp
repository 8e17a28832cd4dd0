#include "program/quantized_ops.hpp"

#include "program/quantization.hpp"

#include <utility>

namespace foreplan {

namespace {

Op op_of(QuantizedOps const& ops, OpKind kind, std::string const& what, std::vector<TensorId> reads,
         std::vector<TensorId> writes, int blocks) {
  Op op;
  op.kind = kind;
  op.name = what + " " + ops.name;
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  op.bits = ops.bits;
  op.blocks = blocks;
  return op;
}

// A collective of codes or scales, into `members` times as many elements.
TensorId move(QuantizedOps const& ops, OpKind kind, TensorId from, AxisSet axes, int members, AxisPlacement result) {
  Tensor to = ops.tensor(from);
  to.name += kind == OpKind::all_gather ? ", gathered" : ", exchanged";
  to.offset = 0;
  to.stride = {};
  to.shape = {to.shape[0] * members};
  to.placement = placed(to.placement, axes, result);
  std::string const what = to.dtype == DType::uint8 ? "codes of " : "scales of ";
  Op op;
  op.kind = kind;
  op.name = (kind == OpKind::all_gather ? "gather " : "exchange ") + what + ops.name;
  op.reads = {from};
  op.writes = {ops.add(std::move(to), Category::communication)};
  op.group = {axes, false};
  TensorId const moved = op.writes[0];
  ops.put(std::move(op));
  return moved;
}

// A sum's terms, added up, are the rank's shard of it.
Placement added_up(Placement placement) {
  for (AxisPlacement& along : placement.along)
    if (along == sum_terms)
      along = sharded(0);
  return placement;
}

// By value: adding a tensor moves those that are there.
Codes add_codes(QuantizedOps const& ops, std::int64_t elements, int blocks, Placement placement) {
  return {ops.add(codes_tensor("codes of " + ops.name, elements, ops.bits, placement), Category::communication),
          ops.add(scales_tensor("scales of " + ops.name, elements, blocks, placement), Category::communication),
          blocks};
}

} // namespace

Tensor codes_tensor(std::string name, std::int64_t elements, int bits, Placement const& placement) {
  Tensor codes;
  codes.name = std::move(name);
  codes.shape = {elements * bits / 8};
  codes.dtype = DType::uint8;
  codes.placement = placement;
  return codes;
}

Tensor scales_tensor(std::string name, std::int64_t elements, int blocks, Placement const& placement) {
  Tensor scales;
  scales.name = std::move(name);
  scales.shape = {groups_of(elements / blocks) * blocks};
  scales.dtype = DType::fp32;
  scales.placement = placement;
  return scales;
}

Codes quantize(QuantizedOps const& ops, TensorId from, int blocks, int swizzle) {
  Tensor const& x = ops.tensor(from);
  Codes const codes = add_codes(ops, x.elements(), blocks, x.placement);
  quantize(ops, from, codes, swizzle);
  return codes;
}

void quantize(QuantizedOps const& ops, TensorId from, Codes const& to, int swizzle) {
  Op op = op_of(ops, OpKind::quantize, "quantize", {from}, {to.codes, to.scales}, to.blocks);
  op.swizzle = swizzle;
  ops.put(std::move(op));
}

Codes gather(QuantizedOps const& ops, Codes const& own, AxisSet axes) {
  int const members = group_size(ops.plan, axes);
  return {move(ops, OpKind::all_gather, own.codes, axes, members, replicated),
          move(ops, OpKind::all_gather, own.scales, axes, members, replicated), own.blocks * members};
}

Codes exchange(QuantizedOps const& ops, Codes const& terms, AxisSet axes) {
  return {move(ops, OpKind::all_to_all, terms.codes, axes, 1, sum_terms),
          move(ops, OpKind::all_to_all, terms.scales, axes, 1, sum_terms), terms.blocks};
}

void dequantize(QuantizedOps const& ops, Codes const& from, TensorId to) {
  ops.put(op_of(ops, OpKind::dequantize, "dequantize", {from.codes, from.scales}, {to}, from.blocks));
}

Codes requantize(QuantizedOps const& ops, Codes const& from, int terms) {
  Tensor const& codes = ops.tensor(from.codes);
  Codes const sum = add_codes(ops, codes.elements() * 8 / ops.bits / terms, from.blocks / terms,
                              added_up(codes.placement));
  ops.put(op_of(ops, OpKind::requantize, "add up and quantize", {from.codes, from.scales}, {sum.codes, sum.scales},
                from.blocks));
  return sum;
}

} // namespace foreplan

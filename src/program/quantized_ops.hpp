// Writing down the ops that move a tensor as codes and scales (program/quantization.hpp), for passes of layers and of
// steps. Codes and scales travel in two calls, as DeepSpeed's do.
#pragma once

#include "program/program.hpp"

#include <functional>
#include <string>

namespace foreplan {

// Where such ops go.
struct QuantizedOps {
  Plan const& plan;
  int bits = 8;
  std::string name;                              // "bucket 3"
  std::function<Tensor const&(TensorId)> tensor; // by its number
  std::function<TensorId(Tensor, Category)> add; // with a temporary of its own
  std::function<void(Op)> put;                   // without a number, part and stream yet
};

// Equal blocks, each with groups of its own.
struct Codes {
  TensorId codes;
  TensorId scales;
  int blocks = 1;
};

// Codes of all of `from`; swizzle: op_kinds.md.
Codes quantize(QuantizedOps const& ops, TensorId from, int blocks, int swizzle = 1);
// The same, into tensors that are there.
void quantize(QuantizedOps const& ops, TensorId from, Codes const& to, int swizzle = 1);
Codes gather(QuantizedOps const& ops, Codes const& own, AxisSet axes);
// Every rank gets its blocks of all ranks' codes: the terms of its part of the sum.
Codes exchange(QuantizedOps const& ops, Codes const& terms, AxisSet axes);
void dequantize(QuantizedOps const& ops, Codes const& from, TensorId to);
// Of the sum of so many terms.
Codes requantize(QuantizedOps const& ops, Codes const& from, int terms);

// Tensors for the codes and scales of so many elements.
Tensor codes_tensor(std::string name, std::int64_t elements, int bits, Placement const& placement);
Tensor scales_tensor(std::string name, std::int64_t elements, int blocks, Placement const& placement);

} // namespace foreplan

// Writing down a layer program: small functions that add a tensor with its buffer, a parameter, an op.
#pragma once

#include "program/program.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace foreplan {

// A parameter as ops see it: its values and its accumulated gradient.
struct ParameterTensors {
  TensorId value;
  TensorId gradient;
};

class LayerBuilder {
public:
  LayerBuilder(std::string name, LayerKind kind, Plan const& plan);

  // Dimensions of tensors that tensor parallelism cuts, or -1; whether they lie outside its regions (residual).
  struct Cut {
    int dimension = -1;
    bool residual = false;
  };
  static constexpr Cut whole{-1, false};
  static constexpr Cut residual{-1, true};
  static constexpr Cut along(int dimension) { return {dimension, false}; }

  // A tensor of this layer with one row (dimension 0) per token or sequence.
  TensorId local(std::string name, std::vector<std::int64_t> shape, DType dtype, Cut cut,
                 Category category = Category::activations);
  // What another kernel makes of a tensor without changing its values here: a pass that reads it and writes as much.
  TensorId copy(TensorId id, Part part, std::string const& what, std::optional<DType> dtype = {});
  // A boundary of the layer: its input, output or their gradients.
  TensorId boundary(std::string name, BufferRef::Scope scope, std::vector<std::int64_t> shape);
  TensorId ids(std::string name, BufferRef::Scope scope, std::int64_t tokens);
  TensorId loss();
  // `transposed`: a matrix that is stored the other way round; shape and dimension are of the matrix.
  ParameterTensors parameter(std::string const& name, std::vector<std::int64_t> shape, int split_dimension,
                             bool tied = false, bool transposed = false);

  Op& forward(OpKind kind, std::string name, std::vector<TensorId> reads, std::vector<TensorId> writes);
  Op& input_gradient(OpKind kind, std::string name, std::vector<TensorId> reads, std::vector<TensorId> writes);
  // `accumulates`: gradients that are read and written, after the reads and as the only writes.
  Op& weight_gradient(OpKind kind, std::string name, std::vector<TensorId> reads, std::vector<TensorId> accumulates);

  LayerProgram take() { return std::move(program_); }

private:
  Op make(OpKind kind, std::string name, Part part, std::vector<TensorId> reads, std::vector<TensorId> writes);
  TensorId add(Tensor tensor);

  LayerProgram program_;
  Plan const& plan_;
  std::int32_t next_op_ = 0;
};

} // namespace foreplan

#include "program/layer_builder.hpp"

namespace foreplan {

LayerBuilder::LayerBuilder(std::string name, LayerKind kind, Plan const& plan) : plan_(plan) {
  program_.name = std::move(name);
  program_.kind = kind;
}

TensorId LayerBuilder::add(Tensor tensor) {
  program_.tensors.push_back(std::move(tensor));
  return TensorId(static_cast<std::int64_t>(program_.tensors.size()) - 1);
}

TensorId LayerBuilder::local(std::string name, std::vector<std::int64_t> shape, DType dtype, Cut cut,
                             Category category) {
  Tensor tensor{.name = std::move(name),
                .buffer = {BufferRef::Scope::local, static_cast<std::int32_t>(program_.buffers.size())},
                .shape = std::move(shape),
                .dtype = dtype,
                .category = category,
                .split_dimension = cut.dimension,
                .residual = cut.residual};
  tensor.placement = placed({}, data_axes, sharded(0));
  program_.buffers.push_back({tensor.name, category, dtype, tensor.elements(), false});
  return add(std::move(tensor));
}

TensorId LayerBuilder::boundary(std::string name, BufferRef::Scope scope, std::vector<std::int64_t> shape) {
  Tensor tensor{.name = std::move(name),
                .buffer = {scope, 0},
                .shape = std::move(shape),
                .dtype = plan_.parameter_dtype,
                .residual = true};
  tensor.placement = placed({}, data_axes, sharded(0));
  return add(std::move(tensor));
}

TensorId LayerBuilder::ids(std::string name, BufferRef::Scope scope, std::int64_t tokens) {
  Tensor tensor{.name = std::move(name), .buffer = {scope, 0}, .shape = {tokens}, .dtype = DType::int32};
  tensor.placement = placed({}, data_axes, sharded(0));
  return add(std::move(tensor));
}

TensorId LayerBuilder::copy(TensorId id, Part part, std::string const& what, std::optional<DType> dtype) {
  Tensor const of = program_[id];
  TensorId const made = local(what, of.shape, dtype.value_or(of.dtype), {of.split_dimension, of.residual}, of.category);
  if (part == Part::forward)
    forward(OpKind::cast, what, {id}, {made});
  else
    input_gradient(OpKind::cast, what, {id}, {made});
  return made;
}

TensorId LayerBuilder::loss() {
  Tensor tensor{.name = "loss", .buffer = {BufferRef::Scope::stage, loss_buffer}, .shape = {1}, .dtype = DType::fp32};
  tensor.placement = placed({}, data_axes, partial_sum);
  return add(std::move(tensor));
}

ParameterTensors LayerBuilder::parameter(std::string const& name, std::vector<std::int64_t> shape, int split_dimension,
                                         bool tied, bool transposed) {
  auto const index = static_cast<std::int32_t>(program_.parameters.size());
  if (transposed) {
    std::swap(shape[0], shape[1]);
    split_dimension = 1 - split_dimension;
  }
  Parameter parameter{.name = name,
                      .shape = shape,
                      .full_shape = shape,
                      .placement = {},
                      .gradient_placement = {},
                      .tied = tied,
                      .transposed = transposed};
  // Along pp every stage holds its own parameters; a tied matrix is held by both ends, each with its part of the sum.
  bool const on_both_ends = tied && !ends_share_stage(plan_);
  parameter.placement[Axis::pp] = on_both_ends ? replicated : sharded(0);
  parameter.gradient_placement[Axis::pp] = on_both_ends ? partial_sum : sharded(0);
  parameter.gradient_placement = placed(parameter.gradient_placement, data_axes, partial_sum);
  Tensor value{.name = name,
               .buffer = {BufferRef::Scope::parameter, index},
               .shape = shape,
               .dtype = plan_.parameter_dtype,
               .placement = parameter.placement,
               .category = Category::parameters,
               .split_dimension = split_dimension};
  Tensor gradient{.name = name + " gradient",
                  .buffer = {BufferRef::Scope::gradient, index},
                  .shape = std::move(shape),
                  .dtype = layer_gradient_dtype(plan_),
                  .placement = parameter.gradient_placement,
                  .category = Category::gradients,
                  .split_dimension = split_dimension};
  program_.parameters.push_back(std::move(parameter));
  TensorId const value_id = add(std::move(value));
  return {value_id, add(std::move(gradient))};
}

Op LayerBuilder::make(OpKind kind, std::string name, Part part, std::vector<TensorId> reads,
                      std::vector<TensorId> writes) {
  Op op;
  op.id = OpId(next_op_++);
  op.kind = kind;
  op.name = std::move(name);
  op.part = part;
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  op.sequence_length = plan_.sequence_length;
  op.context_shards = plan_.cp;
  return op;
}

Op& LayerBuilder::forward(OpKind kind, std::string name, std::vector<TensorId> reads, std::vector<TensorId> writes) {
  program_.forward.push_back(make(kind, std::move(name), Part::forward, std::move(reads), std::move(writes)));
  return program_.forward.back();
}

Op& LayerBuilder::input_gradient(OpKind kind, std::string name, std::vector<TensorId> reads,
                                 std::vector<TensorId> writes) {
  program_.backward.push_back(make(kind, std::move(name), Part::input_gradient, std::move(reads), std::move(writes)));
  return program_.backward.back();
}

Op& LayerBuilder::weight_gradient(OpKind kind, std::string name, std::vector<TensorId> reads,
                                  std::vector<TensorId> accumulates) {
  reads.insert(reads.end(), accumulates.begin(), accumulates.end());
  program_.backward.push_back(
      make(kind, std::move(name), Part::weight_gradient, std::move(reads), std::move(accumulates)));
  return program_.backward.back();
}

} // namespace foreplan

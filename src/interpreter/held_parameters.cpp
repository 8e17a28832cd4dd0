#include "interpreter/held_parameters.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>

namespace foreplan {
namespace {

// Parameters that some norm of the layer multiplies by.
std::set<std::int32_t> norm_weights(LayerProgram const& layer) {
  std::set<std::int32_t> indices;
  for (Op const& op : layer.forward)
    if (op.kind == OpKind::norm_forward)
      indices.insert(layer[op.reads[1]].buffer.index);
  return indices;
}

} // namespace

int stage_of_head(Plan const& plan) { return stage_of_part(plan, plan.pp * plan.chunks - 1).value(); }

std::vector<HeldParameter> held_parameters(Program const& program, StageProgram const& stage) {
  std::vector<HeldParameter> held;
  for (std::size_t layer = 0; layer < stage.layers.size(); ++layer) {
    if (stage.layers[layer].program < 0)
      continue;
    LayerProgram const& kind = program.layer_programs[static_cast<std::size_t>(stage.layers[layer].program)];
    std::set<std::int32_t> const norms = norm_weights(kind);
    for (std::size_t i = 0; i < kind.parameters.size(); ++i) {
      ParameterHome const& home = stage.layers[layer].homes[i];
      held.push_back({static_cast<int>(layer), &kind.parameters[i], home.parameters, home.offset,
                      norms.contains(static_cast<std::int32_t>(i))});
    }
  }
  return held;
}

std::int64_t Master::first(Coordinate const& at) const {
  std::int64_t result = offset;
  for (Axis axis : all_axes)
    result += stride[static_cast<std::size_t>(axis)] * at.along(axis);
  return result;
}

AxisSet Master::shared_over() const {
  AxisSet axes;
  for (Axis axis : all_axes)
    if (stride[static_cast<std::size_t>(axis)] != 0)
      axes = axes | axis;
  return axes;
}

namespace {

// Where what the instance at `update` has updated ends up, copied by those after it; the operand itself when it is not.
BoundOperand home_of(StageStorage const& storage, std::size_t update, BoundOperand operand) {
  for (std::size_t i = update + 1; i < storage.bound.size(); ++i) {
    BoundOperand const* const operands = storage.operands.data() + storage.bound[i].first_operand;
    if (storage.bound[i].op->kind == OpKind::copy && operands[0].address == operand.address &&
        operands[0].tensor->elements() == operand.tensor->elements())
      return operands[1];
  }
  return operand;
}

} // namespace

std::vector<Master> masters_of(Plan const& plan, StageProgram const& stage, StageStorage const& storage) {
  std::vector<Master> masters;
  for (std::size_t i = 0; i < storage.bound.size(); ++i) {
    BoundInstance const& instance = storage.bound[i];
    if (instance.op->kind != OpKind::adam)
      continue;
    BoundOperand const* writes = storage.operands.data() + instance.first_operand + instance.reads;
    BoundOperand const parameter = home_of(storage, i, writes[3]);
    BufferId const buffer(parameter.tensor->buffer.index);
    auto const bucket = std::find_if(stage.buckets.begin(), stage.buckets.end(),
                                     [&](Bucket const& b) { return b.shard_parameters == buffer; });
    if (bucket == stage.buckets.end())
      throw std::runtime_error("'" + instance.op->name + "' updates no bucket");
    // A shard in a buffer of its own lies where it would in the whole bucket.
    Tensor const& tensor = *parameter.tensor;
    bool const alone = buffer != bucket->parameters;
    masters.push_back({bucket->parameters, tensor.offset,
                       alone ? shard_strides(plan, bucket->sharded_over, bucket->shard_elements) : tensor.stride,
                       tensor.elements(), parameter, home_of(storage, i, writes[0]), home_of(storage, i, writes[1]),
                       home_of(storage, i, writes[2])});
  }
  return masters;
}

MasterPart part_of(HeldParameter const& held, Master const& master, Coordinate const& at) {
  if (master.parameters != held.parameters)
    return {};
  std::int64_t const begin = std::max(held.offset, master.first(at));
  std::int64_t const end = std::min(held.offset + held.parameter->elements(), master.first(at) + master.count);
  return {begin - held.offset, begin - master.first(at), end - begin};
}

} // namespace foreplan

#include "program/instances.hpp"

#include <functional>
#include <map>
#include <unordered_map>

namespace foreplan {

namespace {

class Expander {
public:
  Expander(Program const& program, StageProgram const& stage) : program_(program), stage_(stage) {}

  std::vector<Instance> expand() {
    for (Element const& element : stage_.elements) {
      if (Op const* op = std::get_if<Op>(&element)) {
        add_step_op(*op);
      } else {
        add_slot(std::get<Slot>(element));
        last_of_element_[std::get<Slot>(element).id] = compute_tail_;
      }
    }
    return std::move(instances_);
  }

private:
  void add_step_op(Op const& op) {
    Instance instance{&op, nullptr, -1, op.micro_batch, {}};
    for (OpId target : op.waits)
      if (auto const found = last_of_element_.find(target); found != last_of_element_.end())
        instance.waits.push_back(found->second);
    add(std::move(instance));
    last_of_element_[op.id] = static_cast<std::int32_t>(instances_.size()) - 1;
  }

  void add_slot(Slot const& slot) {
    entry_of_layer_.clear();
    position_.clear();
    for (LayerPiece const& piece : pieces_of(stage_, slot, breaks_)) {
      auto const program = static_cast<std::size_t>(stage_.layers[static_cast<std::size_t>(piece.layer)].program);
      add_piece(program_.layer_programs[program], piece, slot);
    }
  }

  void add_piece(LayerProgram const& layer_program, LayerPiece const& piece, Slot const& slot) {
    std::int32_t const at_entry = entry_of_layer_.try_emplace(piece.layer, compute_tail_).first->second;
    for (std::size_t i = piece.first; i < piece.last; ++i) {
      Op const& op = ops_of(layer_program, slot.kind)[i];
      Instance instance{&op, &layer_program, piece.layer, slot.micro_batch, {}};
      for (OpId target : op.waits) {
        if (target == entry) {
          if (at_entry >= 0)
            instance.waits.push_back(at_entry);
        } else if (auto const found = position_.find({piece.layer, target}); found != position_.end()) {
          instance.waits.push_back(found->second);
        }
      }
      position_[{piece.layer, op.id}] = static_cast<std::int32_t>(instances_.size());
      add(std::move(instance));
    }
  }

  void add(Instance instance) {
    if (instance.op->stream == Stream::compute)
      compute_tail_ = static_cast<std::int32_t>(instances_.size());
    instances_.push_back(std::move(instance));
  }

  Program const& program_;
  StageProgram const& stage_;
  BreaksOfLayers breaks_ = breaks_of(program_);
  std::vector<Instance> instances_;
  std::int32_t compute_tail_ = -1;
  // of the slot that is being added
  std::map<int, std::int32_t> entry_of_layer_;
  std::map<std::pair<int, OpId>, std::int32_t> position_;
  std::unordered_map<OpId, std::int32_t> last_of_element_;
};

std::int32_t program_index(Program const& program, Instance const& instance) {
  return static_cast<std::int32_t>(instance.layer_program - program.layer_programs.data());
}

} // namespace

std::vector<Instance> instances_of(Program const& program, StageProgram const& stage) {
  return Expander(program, stage).expand();
}

std::size_t BufferKeyHash::operator()(BufferKey const& key) const noexcept {
  std::size_t hash = static_cast<std::size_t>(key.space);
  for (std::int32_t field : {key.program, key.index, key.layer, key.micro_batch})
    hash = hash * 1000003 + std::hash<std::int32_t>{}(field);
  return hash;
}

BufferKey resolve(Program const& program, StageProgram const& stage, Instance const& instance, BufferRef buffer) {
  using Scope = BufferRef::Scope;
  using Space = BufferKey::Space;
  std::int32_t const layer = instance.layer, j = instance.micro_batch.value();
  auto const home = [&]() -> ParameterHome const& {
    return stage.layers[static_cast<std::size_t>(layer)].homes[static_cast<std::size_t>(buffer.index)];
  };
  switch (buffer.scope) {
    case Scope::local: return {Space::local, program_index(program, instance), buffer.index, layer, j};
    case Scope::input: return {Space::activation, -1, layer, -1, j};
    case Scope::output: return {Space::activation, -1, layer + 1, -1, j};
    case Scope::output_gradient: return {Space::activation_gradient, -1, layer + 1, -1, j};
    case Scope::input_gradient: return {Space::activation_gradient, -1, layer, -1, j};
    case Scope::parameter: return {Space::stage, -1, home().parameters.value(), -1, -1};
    case Scope::gradient: return {Space::stage, -1, home().gradients.value(), -1, -1};
    case Scope::tokens: return {Space::tokens, -1, 0, -1, j};
    case Scope::labels: return {Space::labels, -1, 0, -1, j};
    case Scope::stage: return {Space::stage, -1, buffer.index, -1, -1};
    case Scope::activation: return {Space::activation, -1, buffer.index, -1, j};
    case Scope::activation_gradient: return {Space::activation_gradient, -1, buffer.index, -1, j};
  }
  return {};
}

Access resolve(Program const& program, StageProgram const& stage, Instance const& instance, Tensor const& tensor,
               Coordinate const& at) {
  Access access{resolve(program, stage, instance, tensor.buffer), tensor.offset_on(at), 0};
  if (tensor.buffer.scope == BufferRef::Scope::parameter || tensor.buffer.scope == BufferRef::Scope::gradient)
    access.begin += stage.layers[static_cast<std::size_t>(instance.layer)]
                        .homes[static_cast<std::size_t>(tensor.buffer.index)]
                        .offset;
  access.end = access.begin + tensor.elements();
  return access;
}

Tensor const& tensor_of(StageProgram const& stage, Instance const& instance, TensorId id) {
  return instance.layer_program != nullptr ? (*instance.layer_program)[id] : stage[id];
}

Buffer buffer_of(Program const& program, StageProgram const& stage, BufferKey const& key) {
  using Space = BufferKey::Space;
  Plan const& plan = program.plan;
  switch (key.space) {
    case Space::stage: return stage.buffers[static_cast<std::size_t>(key.index)];
    case Space::local:
      return program.layer_programs[static_cast<std::size_t>(key.program)].buffers[static_cast<std::size_t>(key.index)];
    case Space::activation:
    case Space::activation_gradient: {
      std::int64_t const shards = plan.sequence_parallel ? plan.tp : 1;
      return {key.space == Space::activation ? "boundary activations" : "boundary gradients", Category::activations,
              plan.parameter_dtype, plan.tokens() / shards * program.model.hidden, false};
    }
    case Space::tokens:
    case Space::labels: return {"ids", Category::scratch, DType::int32, plan.tokens(), true};
  }
  return {};
}

} // namespace foreplan

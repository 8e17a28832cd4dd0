// ZeRO-Offload (arXiv 2101.06840, sections 3 and 4): optimizer states live in the host's memory, and the host's processors
// update them. A bucket's gradients go down when they are complete; after the global norm Adam runs tile by tile on the
// host, and a tile's parameters go up while the next is updated (one-step delay is not used: the step ends with the last
// copy). Twin-Flow (DeepSpeed, "offload ratio"): only the first part of each bucket, the device updates the rest.
#include "program/step_passes/step_passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace foreplan {

namespace {

class HostOptimizer {
public:
  HostOptimizer(Program const& program, StageProgram& stage) : plan_(program.plan), stage_(stage) {}

  void run() {
    std::vector<Element> const elements = std::move(stage_.elements);
    for (Element const& element : elements)
      if (Op const* op = std::get_if<Op>(&element); op != nullptr && op->kind == OpKind::adam)
        take(*op);
    stage_.elements.clear();
    std::vector<std::vector<std::size_t>> down_after(elements.size()); // updates whose gradients are complete there
    for (std::size_t u = 0; u < updates_.size(); ++u)
      down_after[last_write(elements, updates_[u].device_gradient)].push_back(u);
    for (std::size_t e = 0; e < elements.size(); ++e) {
      Op const* op = std::get_if<Op>(&elements[e]);
      if (op == nullptr || op->kind != OpKind::adam)
        stage_.elements.push_back(elements[e]);
      else
        update(*op);
      for (std::size_t u : down_after[e])
        copy(updates_[u].device_gradient, updates_[u].host_gradient, "gradients down", Stream::copy_down);
    }
  }

private:
  // What the host updates of one adam op: the first `elements` of its operands.
  struct Update {
    OpId adam;
    std::int64_t elements = 0;
    TensorId device_gradient, host_gradient; // of these elements
    TensorId states[3];
    TensorId host_parameter;
    TensorId device_parameter;
  };

  // The first `count` elements of a flat tensor, or a later part of it.
  static Tensor part_of(Tensor tensor, std::int64_t first, std::int64_t count) {
    if (first == 0 && count == tensor.elements())
      return tensor;
    tensor.whole_elements = tensor.elements();
    tensor.offset += first;
    tensor.shape = {count};
    return tensor;
  }

  // A place on the host for a tensor of the device.
  Tensor on_host(Tensor const& tensor, std::string const& name, Category category) {
    BufferId const buffer = add_buffer(
        stage_, {tensor.name + name, category, tensor.dtype, tensor.elements(), true, MemoryTier::host});
    return flat_tensor(stage_, buffer, tensor.placement);
  }

  void take(Op const& adam) {
    Update update{.adam = adam.id,
                  .elements = host_elements(stage_[adam.reads[0]].elements()),
                  .device_gradient = {},
                  .host_gradient = {},
                  .states = {},
                  .host_parameter = {},
                  .device_parameter = {}};
    if (update.elements == 0)
      return;
    Tensor const gradient = part_of(stage_[adam.reads[0]], 0, update.elements);
    Tensor const parameter = part_of(stage_[adam.writes[3]], 0, update.elements);
    update.device_gradient = add_tensor(stage_, gradient);
    update.host_gradient = add_tensor(stage_, on_host(gradient, " on the host", Category::gradients));
    update.device_parameter = add_tensor(stage_, parameter);
    update.host_parameter = add_tensor(stage_, on_host(parameter, " on the host", Category::parameters));
    for (std::size_t i = 0; i < 3; ++i)
      update.states[i] = move_state(adam.writes[i], update.elements);
    updates_.push_back(update);
  }

  // A whole number of tiles, so that the device's part begins at one's border.
  std::int64_t host_elements(std::int64_t elements) const {
    if (plan_.offload.ratio >= 1)
      return elements;
    return static_cast<std::int64_t>(std::llround(plan_.offload.ratio * static_cast<double>(elements)));
  }

  // The host's part of an optimizer state; what is left, if anything, stays in its buffer on the device.
  TensorId move_state(TensorId id, std::int64_t elements) {
    Tensor& state = stage_[id];
    Buffer& buffer = stage_.buffers[static_cast<std::size_t>(state.buffer.index)];
    if (elements == state.elements()) {
      buffer.tier = MemoryTier::host;
      return id;
    }
    buffer.elements -= elements;
    state.shape = {buffer.elements};
    Buffer const host{buffer.name + " on the host", buffer.category, buffer.dtype, elements, true, MemoryTier::host};
    Placement const placement = state.placement;
    TensorId const result = add_tensor(stage_, flat_tensor(stage_, add_buffer(stage_, host), placement));
    stage_.initial.push_back(result);
    return result;
  }

  // The element after which the gradient is complete: a reduction, a cast, or a backward that adds to it.
  std::size_t last_write(std::vector<Element> const& elements, TensorId gradient) const {
    BufferRef const buffer = stage_[gradient].buffer;
    std::size_t last = 0;
    for (std::size_t e = 0; e < elements.size(); ++e) {
      Op const* op = std::get_if<Op>(&elements[e]);
      bool const writes = op != nullptr ? std::any_of(op->writes.begin(), op->writes.end(),
                                                      [&](TensorId id) { return stage_[id].buffer == buffer; })
                                        : adds_to(std::get<Slot>(elements[e]), buffer);
      if (writes)
        last = e;
    }
    return last;
  }

  bool adds_to(Slot const& slot, BufferRef buffer) const {
    if (slot.kind == SlotKind::forward)
      return false;
    for (int layer = slot.first; layer < slot.last; ++layer)
      for (ParameterHome const& home : stage_.layers[static_cast<std::size_t>(layer)].homes)
        if (BufferRef{BufferRef::Scope::stage, home.gradients.value()} == buffer)
          return true;
    return false;
  }

  void copy(TensorId from, TensorId to, std::string const& what, Stream stream) {
    stage_.elements.emplace_back(
        step_op(stage_, OpKind::copy, fmt::format("{} ({})", what, stage_[from].name), stream, {from}, {to}));
  }

  // The norm as the host's Adam reads it: copied once.
  TensorId norm_on_host(TensorId norm) {
    if (!host_norm_) {
      host_norm_ = add_tensor(stage_, on_host(stage_[norm], " on the host", Category::scratch));
      copy(norm, *host_norm_, "norm down", Stream::copy_down);
    }
    return *host_norm_;
  }

  void update(Op const& adam) {
    auto const found = std::find_if(updates_.begin(), updates_.end(),
                                    [&](Update const& update) { return update.adam == adam.id; });
    if (found == updates_.end()) {
      stage_.elements.emplace_back(adam);
      return;
    }
    TensorId const norm = norm_on_host(adam.reads[1]);
    std::int64_t const tile = plan_.offload.tile > 0 ? plan_.offload.tile : found->elements;
    for (std::int64_t first = 0; first < found->elements; first += tile)
      update_tile(*found, norm, first, std::min(tile, found->elements - first), adam.name);
    std::int64_t const all = stage_[adam.reads[0]].elements();
    if (found->elements < all)
      update_rest(adam, found->elements, all - found->elements);
  }

  void update_tile(Update const& update, TensorId norm, std::int64_t first, std::int64_t count,
                   std::string const& name) {
    auto tile = [&](TensorId id) { return add_tensor(stage_, part_of(stage_[id], first, count)); };
    TensorId const gradient = tile(update.host_gradient), master = tile(update.states[0]), m = tile(update.states[1]),
                   v = tile(update.states[2]), parameter = tile(update.host_parameter);
    stage_.elements.emplace_back(step_op(stage_, OpKind::adam, name + " on the host", Stream::host,
                                         {gradient, norm, master, m, v}, {master, m, v, parameter}));
    Tensor up = stage_[update.device_parameter];
    std::int64_t const whole = up.whole_elements > 0 ? up.whole_elements : up.elements();
    up = part_of(up, first, count);
    if (count < whole)
      up.whole_elements = whole;
    copy(parameter, add_tensor(stage_, std::move(up)), "parameters up", Stream::copy_up);
  }

  // What the device updates itself: its states' buffers hold this part alone.
  void update_rest(Op adam, std::int64_t first, std::int64_t count) {
    adam.reads[0] = add_tensor(stage_, part_of(stage_[adam.reads[0]], first, count));
    adam.writes[3] = add_tensor(stage_, part_of(stage_[adam.writes[3]], first, count));
    stage_.elements.emplace_back(std::move(adam));
  }

  Plan const& plan_;
  StageProgram& stage_;
  std::vector<Update> updates_;
  std::optional<TensorId> host_norm_;
};

} // namespace

void offload(Program const& program, StageProgram& stage) {
  if (program.plan.offload.optimizer != MemoryTier::device)
    HostOptimizer(program, stage).run();
}

} // namespace foreplan

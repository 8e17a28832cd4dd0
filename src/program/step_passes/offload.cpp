// ZeRO-Offload (arXiv 2101.06840, sections 3 and 4): optimizer states live in the host's memory, and the host's processors
// update them. A bucket's gradients go down when they are complete; after the global norm Adam runs tile by tile on the
// host, and a tile's parameters go up while the next is updated (one-step delay is not used: the step ends with the last
// copy). Gradients or parameters that already live on the host are used where they are. ZeRO-Infinity (arXiv
// 2104.07857, section 5.1.3): from a drive the states come in sub-groups through buffers of the host; the next is read
// and the last written while one is updated. Twin-Flow (DeepSpeed, "offload ratio"): only the first part of each
// bucket, the device updates the rest.
#include "program/step_passes/host_buffers.hpp"
#include "program/step_passes/step_passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace foreplan {

namespace {

class HostOptimizer {
public:
  HostOptimizer(Program const& program, StageProgram& stage) : offload_(program.plan.offload), stage_(stage) {}

  void run() {
    std::vector<Element> const elements = std::move(stage_.elements);
    for (Element const& element : elements)
      if (Op const* op = std::get_if<Op>(&element); op != nullptr && op->kind == OpKind::adam)
        take(*op);
    stage_.elements.clear();
    std::vector<std::vector<std::size_t>> down_after(elements.size()); // updates whose gradients are complete there
    for (std::size_t u = 0; u < updates_.size(); ++u)
      if (tier_of(stage_, updates_[u].device_gradient) == MemoryTier::device)
        down_after[last_write(elements, updates_[u].device_gradient)].push_back(u);
    for (std::size_t e = 0; e < elements.size(); ++e) {
      Op const* op = std::get_if<Op>(&elements[e]);
      if (op == nullptr || op->kind != OpKind::adam)
        stage_.elements.push_back(elements[e]);
      else
        update(*op);
      for (std::size_t u : down_after[e])
        add(copy_down(stage_, updates_[u].device_gradient, updates_[u].gradient,
                      fmt::format("gradients ({})", stage_[updates_[u].device_gradient].name), gradients_to_disk_));
    }
  }

private:
  // What the host updates of one adam op: the first `elements` of its operands.
  struct Update {
    OpId adam;
    std::int64_t elements = 0;
    TensorId device_gradient, gradient; // as reduced, and where the update finds it
    TensorId states[3];
    TensorId parameter, device_parameter; // where the update leaves it, and where the device needs it
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

  // Where it lives, if that is not the device; else a place for it in `tier`.
  TensorId home_of(Tensor const& tensor, Category category, MemoryTier tier) {
    // Before one is added to the stage's tensors, among which this may be: they move.
    std::string const name = fmt::format("{} on the {}", tensor.name, to_string(tier));
    TensorId const id = add_tensor(stage_, tensor);
    return tier_of(stage_, id) != MemoryTier::device ? id : at_home(stage_, id, name, category, tier);
  }

  void take(Op const& adam) {
    Update update{.adam = adam.id,
                  .elements = host_elements(stage_[adam.reads[0]].elements()),
                  .device_gradient = {},
                  .gradient = {},
                  .states = {},
                  .parameter = {},
                  .device_parameter = {}};
    if (update.elements == 0)
      return;
    Tensor const gradient = part_of(stage_[adam.reads[0]], 0, update.elements);
    Tensor const parameter = part_of(stage_[adam.writes[3]], 0, update.elements);
    update.device_gradient = add_tensor(stage_, gradient);
    update.gradient = home_of(gradient, Category::gradients, offload_.optimizer);
    update.device_parameter = add_tensor(stage_, parameter);
    update.parameter = home_of(parameter, Category::parameters, MemoryTier::host);
    for (std::size_t i = 0; i < 3; ++i)
      update.states[i] = move_state(adam.writes[i], update.elements);
    updates_.push_back(update);
  }

  // A whole number of tiles, so that the device's part begins at one's border.
  std::int64_t host_elements(std::int64_t elements) const {
    if (offload_.ratio >= 1)
      return elements;
    return static_cast<std::int64_t>(std::llround(offload_.ratio * static_cast<double>(elements)));
  }

  // The host's part of an optimizer state; what is left, if anything, stays in its buffer on the device.
  TensorId move_state(TensorId id, std::int64_t elements) {
    Tensor& state = stage_[id];
    Buffer& buffer = stage_.buffers[static_cast<std::size_t>(state.buffer.index)];
    if (elements == state.elements()) {
      buffer.tier = offload_.optimizer;
      return id;
    }
    buffer.elements -= elements;
    state.shape = {buffer.elements};
    Buffer const moved{fmt::format("{} on the {}", buffer.name, to_string(offload_.optimizer)),
                       buffer.category,
                       buffer.dtype,
                       elements,
                       true,
                       offload_.optimizer};
    Placement const placement = state.placement;
    TensorId const result = add_tensor(stage_, flat_tensor(stage_, add_buffer(stage_, moved), placement));
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

  void add(std::vector<Op> const& ops) { stage_.elements.insert(stage_.elements.end(), ops.begin(), ops.end()); }

  void copy(TensorId from, TensorId to, std::string const& what, Stream stream) {
    add({copy_op(stage_, from, to, fmt::format("{} ({})", what, stage_[from].name), stream)});
  }

  // The norm as the host's Adam reads it: copied once.
  TensorId norm_on_host(TensorId norm) {
    if (!host_norm_) {
      host_norm_ = home_of(stage_[norm], Category::scratch, MemoryTier::host);
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
    std::int64_t const piece = piece_elements(found->elements);
    for (std::int64_t first = 0; first < found->elements; first += piece)
      update_piece(*found, norm, first, std::min(piece, found->elements - first), adam.name);
    std::int64_t const all = stage_[adam.reads[0]].elements();
    if (found->elements < all)
      update_rest(adam, found->elements, all - found->elements);
  }

  // What is updated at once: of states on a drive a sub-group, else a tile.
  std::int64_t piece_elements(std::int64_t all) const {
    std::int64_t const piece = offload_.optimizer == MemoryTier::disk ? offload_.sub_group : offload_.tile;
    return piece > 0 ? piece : all;
  }

  void update_piece(Update const& update, TensorId norm, std::int64_t first, std::int64_t count,
                    std::string const& name) {
    auto piece = [&](TensorId id) { return add_tensor(stage_, part_of(stage_[id], first, count)); };
    std::array<TensorId, 4> const homes{piece(update.states[0]), piece(update.states[1]), piece(update.states[2]),
                                        piece(update.gradient)};
    std::array<TensorId, 4> at{};
    for (std::size_t i = 0; i < homes.size(); ++i)
      at[i] = fetched(homes[i], i < 3 ? states_from_disk_ : gradients_from_disk_);
    TensorId const parameter_home = piece(update.parameter);
    bool const parameter_on_disk = tier_of(stage_, parameter_home) == MemoryTier::disk;
    TensorId const parameter = parameter_on_disk ? parameters_to_disk_.take(stage_, parameter_home) : parameter_home;
    Op adam = step_op(stage_, OpKind::adam, name + " on the host", Stream::host, {at[3], norm, at[0], at[1], at[2]},
                      {at[0], at[1], at[2], parameter});
    if (at[3] != homes[3])
      gradients_from_disk_.give_back(stage_, at[3], adam);
    add({std::move(adam)});
    for (std::size_t i = 0; i < 3; ++i)
      put_back(at[i], homes[i], states_from_disk_);
    put_back(parameter, parameter_home, parameters_to_disk_);
    if (tier_of(stage_, update.device_parameter) == MemoryTier::device)
      send_up(parameter, update.device_parameter, first, count);
  }

  // Where the host can work on it: a buffer with what the drive holds, or its home.
  TensorId fetched(TensorId home, HostBuffers& buffers) {
    if (tier_of(stage_, home) != MemoryTier::disk)
      return home;
    TensorId const host = buffers.take(stage_, home);
    copy(home, host, "from disk", Stream::disk_read);
    return host;
  }

  void put_back(TensorId host, TensorId home, HostBuffers& buffers) {
    if (host == home)
      return;
    copy(host, home, "to disk", Stream::disk_write);
    buffers.give_back(stage_, host, std::get<Op>(stage_.elements.back()));
  }

  void send_up(TensorId parameter, TensorId device, std::int64_t first, std::int64_t count) {
    Tensor up = stage_[device];
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

  // Three sub-groups take turns: one comes, one is updated, one goes.
  static constexpr int turns = 3;

  Offload const& offload_;
  StageProgram& stage_;
  HostBuffers states_from_disk_{"states from disk", 3 * turns};
  HostBuffers gradients_from_disk_{"gradients from disk", turns};
  HostBuffers gradients_to_disk_{"gradients to disk", turns};
  HostBuffers parameters_to_disk_{"parameters to disk", turns};
  std::vector<Update> updates_;
  std::optional<TensorId> host_norm_;
};

} // namespace

void offload(Program const& program, StageProgram& stage) {
  if (program.plan.offload.optimizer != MemoryTier::device)
    HostOptimizer(program, stage).run();
}

} // namespace foreplan

// Activation checkpoints on the host (ZeRO-Infinity, arXiv 2104.07857, section 5.1.2; DeepSpeed's cpu_checkpointing):
// the input of a fully recomputed layer goes down when its forward has read it and comes back some layers ahead of its
// backward, over the link that everything else shares.
#include "program/step_passes/host_buffers.hpp"
#include "program/step_passes/step_passes.hpp"

#include <fmt/format.h>

#include <map>

namespace foreplan {

namespace {

class HostCheckpoints {
public:
  HostCheckpoints(Program const& program, StageProgram& stage)
      : program_(program), stage_(stage), buffers_("checkpoint", 1) {}

  void run() {
    std::vector<Element> const elements = cut_at_layers();
    for (Element const& element : elements)
      if (Slot const* slot = std::get_if<Slot>(&element); slot != nullptr && is_use(*slot))
        uses_.push_back(key_of(*slot));
    std::size_t use = 0;
    for (Element const& element : elements) {
      Slot const* slot = std::get_if<Slot>(&element);
      if (slot != nullptr && is_use(*slot))
        copy_up_to(use++);
      stage_.elements.push_back(element);
      if (slot == nullptr)
        continue;
      give_up();
      if (slot->kind == SlotKind::forward && is_checkpoint(*slot))
        copy_down(key_of(*slot));
    }
    give_up();
  }

private:
  using Key = std::pair<int, MicroBatch>; // boundary

  static Key key_of(Slot const& slot) { return {slot.first, slot.micro_batch}; }

  bool is_checkpoint(Slot const& slot) const {
    return is_recomputed(program_, stage_.chunks[slot.chunk.index()], slot.first);
  }
  bool is_use(Slot const& slot) const { return slot.kind == SlotKind::backward && is_checkpoint(slot); }

  std::vector<Element> cut_at_layers() {
    std::vector<Element> const elements = std::move(stage_.elements);
    stage_.elements.clear();
    std::vector<Element> result;
    for (Element const& element : elements)
      if (Slot const* slot = std::get_if<Slot>(&element); slot != nullptr && slot->kind != SlotKind::weight_gradient)
        for (Slot const& part : cut_slot(stage_, *slot, [](int) { return true; }))
          result.emplace_back(part);
      else
        result.push_back(element);
    return result;
  }

  TensorId boundary(int layer) {
    auto const [found, is_new] = boundaries_.try_emplace(layer);
    if (is_new)
      found->second = add_tensor(stage_, boundary_tensor(program_, {BufferRef::Scope::activation, layer}));
    return found->second;
  }

  void add(Op op, Key const& key) {
    op.micro_batch = key.second;
    stage_.elements.emplace_back(std::move(op));
  }

  void copy_down(Key const& key) {
    TensorId const device = boundary(key.first), host = buffers_.take(stage_, device);
    add(copy_op(stage_, device, host, fmt::format("checkpoint of layer {} down", key.first), Stream::copy_down), key);
    on_host_[key] = host;
    leaving_.push_back(key);
  }

  // Behind the next layer: by then the copies have had their time.
  void give_up() {
    for (Key const& key : leaving_) {
      Op op = step_op(stage_, OpKind::wait, "give up checkpoint", Stream::compute, {}, {});
      op.releases = {{BufferRef::Scope::activation, key.first}};
      add(std::move(op), key);
    }
    leaving_.clear();
  }

  void copy_up_to(std::size_t use) {
    std::size_t const end = use + 1 + static_cast<std::size_t>(program_.plan.offload.prefetch);
    for (; use < std::min(end, uses_.size()); ++use) {
      auto const found = on_host_.find(uses_[use]);
      if (found == on_host_.end()) // there already, or its forward is yet to come
        continue;
      give_up();
      Key const key = found->first;
      Op up = copy_op(stage_, found->second, boundary(key.first), fmt::format("checkpoint of layer {} up", key.first),
                      Stream::copy_up);
      buffers_.give_back(stage_, found->second, up);
      add(std::move(up), key);
      on_host_.erase(found);
    }
  }

  Program const& program_;
  StageProgram& stage_;
  HostBuffers buffers_;
  std::vector<Key> uses_; // by backwards, in issue order
  std::map<int, TensorId> boundaries_;
  std::map<Key, TensorId> on_host_;
  std::vector<Key> leaving_; // on their way down
};

} // namespace

void offload_checkpoints(Program const& program, StageProgram& stage) {
  if (program.plan.offload.checkpoints)
    HostCheckpoints(program, stage).run();
}

} // namespace foreplan

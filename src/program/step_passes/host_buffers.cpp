#include "program/step_passes/host_buffers.hpp"

#include "program/step_passes/step_passes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace foreplan {

namespace {

// The tensor, at the beginning of another buffer.
Tensor moved(Tensor tensor, BufferId buffer, std::string name, Category category) {
  tensor.name = std::move(name);
  tensor.buffer = {BufferRef::Scope::stage, buffer.value()};
  tensor.offset = tensor.whole_elements = 0;
  tensor.stride = {};
  tensor.category = category;
  return tensor;
}

} // namespace

TensorId HostBuffers::take(StageProgram& stage, TensorId like) {
  std::int64_t const elements = stage[like].elements();
  BufferId buffer;
  if (count_ < least_ || free_.empty()) {
    buffer = add_buffer(stage, {fmt::format("{} buffer {}", name_, count_++), Category::communication,
                                stage[like].dtype, 0, true, MemoryTier::host});
  } else {
    buffer = free_.front();
    free_.pop_front();
  }
  Buffer& storage = stage.buffers[buffer.index()];
  storage.elements = std::max(storage.elements, elements);
  return add_tensor(stage, moved(stage[like], buffer, storage.name, storage.category));
}

TensorId at_home(StageProgram& stage, TensorId like, std::string const& name, Category category, MemoryTier tier) {
  BufferId const buffer = add_buffer(stage, {name, category, stage[like].dtype, stage[like].elements(), true, tier});
  return add_tensor(stage, moved(stage[like], buffer, name, category));
}

MemoryTier tier_of(StageProgram const& stage, TensorId tensor) {
  BufferRef const buffer = stage[tensor].buffer;
  return buffer.scope == BufferRef::Scope::stage ? stage.buffers[static_cast<std::size_t>(buffer.index)].tier
                                                 : MemoryTier::device;
}

Op copy_op(StageProgram& stage, TensorId from, TensorId to, std::string const& what, Stream stream) {
  return step_op(stage, OpKind::copy, what, stream, {from}, {to});
}

std::vector<Op> copy_down(StageProgram& stage, TensorId device, TensorId home, std::string const& what,
                          HostBuffers& buffers) {
  if (tier_of(stage, home) == MemoryTier::host)
    return {copy_op(stage, device, home, what + " down", Stream::copy_down)};
  TensorId const host = buffers.take(stage, home);
  Op const down = copy_op(stage, device, host, what + " down", Stream::copy_down);
  Op write = copy_op(stage, host, home, what + " to disk", Stream::disk_write);
  buffers.give_back(stage, host, write);
  return {down, write};
}

std::vector<Op> copy_up(StageProgram& stage, TensorId home, TensorId device, std::string const& what,
                        HostBuffers& buffers) {
  if (tier_of(stage, home) == MemoryTier::host)
    return {copy_op(stage, home, device, what + " up", Stream::copy_up)};
  TensorId const host = buffers.take(stage, home);
  Op const read = copy_op(stage, home, host, what + " from disk", Stream::disk_read);
  Op up = copy_op(stage, host, device, what + " up", Stream::copy_up);
  buffers.give_back(stage, host, up);
  return {read, up};
}

} // namespace foreplan

// Instances: the ops of one rank, one by one, in the order in which the host issues them. For runners that need every
// op (verifier, interpreter, device runner); the engines walk slots instead and never store this list.
#pragma once

#include "program/program.hpp"

#include <cstdint>
#include <vector>

namespace foreplan {

struct Instance {
  Op const* op = nullptr;
  LayerProgram const* layer_program = nullptr; // nullptr: a step-level op
  int layer = -1;                              // of the model; -1: a step-level op
  MicroBatch micro_batch;
  std::vector<std::int32_t> waits; // positions of earlier instances
};

std::vector<Instance> instances_of(Program const& program, StageProgram const& stage);

// Storage that one instance of a tensor refers to: two accesses conflict when their keys are equal and their ranges
// overlap. Persistent buffers of the stage have layer = micro_batch = -1.
struct BufferKey {
  enum class Space : std::uint8_t { stage, local, activation, activation_gradient, tokens, labels };
  Space space = Space::stage;
  std::int32_t program = -1; // layer program, for local buffers
  std::int32_t index = 0;    // buffer, or boundary
  std::int32_t layer = -1;
  std::int32_t micro_batch = -1;
  friend auto operator<=>(BufferKey const&, BufferKey const&) = default;
};

struct BufferKeyHash {
  std::size_t operator()(BufferKey const& key) const noexcept;
};

struct Access {
  BufferKey key;
  std::int64_t begin = 0; // elements
  std::int64_t end = 0;
};

// The storage that a tensor of this instance refers to on the rank at `at`.
Access resolve(Program const& program, StageProgram const& stage, Instance const& instance, Tensor const& tensor,
               Coordinate const& at);
// The same for a release.
BufferKey resolve(Program const& program, StageProgram const& stage, Instance const& instance, BufferRef buffer);

Tensor const& tensor_of(StageProgram const& stage, Instance const& instance, TensorId id);

// Bytes and category of the buffer behind a key, and whether it is persistent.
Buffer buffer_of(Program const& program, StageProgram const& stage, BufferKey const& key);

} // namespace foreplan

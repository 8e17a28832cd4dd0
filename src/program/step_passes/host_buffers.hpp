// Buffers of pinned host memory through which passes move tensors between a device, its host and the host's drives.
#pragma once

#include "program/program.hpp"

#include <deque>
#include <string>

namespace foreplan {

// Take turns: at least so many that one is filled while another is used and a third emptied.
class HostBuffers {
public:
  HostBuffers(std::string name, int least) : name_(std::move(name)), least_(least) {}

  // A place on the host for a tensor of another memory (always of the same dtype): in the buffer given back longest
  // ago.
  TensorId take(StageProgram& stage, TensorId like);
  // `last`: the op that uses it last, and gives up what is in it.
  void give_back(StageProgram const& stage, TensorId taken, Op& last) {
    last.releases.push_back(stage[taken].buffer);
    free_.emplace_back(stage[taken].buffer.index);
  }

private:
  std::string name_;
  int least_;
  int count_ = 0;
  std::deque<BufferId> free_;
};

// A place of its own for a tensor of the device, in another memory.
TensorId at_home(StageProgram& stage, TensorId like, std::string const& name, Category category, MemoryTier tier);
MemoryTier tier_of(StageProgram const& stage, TensorId tensor);

// The op that copies over this stream; between the device and its home these pass through the host where that is a
// drive.
Op copy_op(StageProgram& stage, TensorId from, TensorId to, std::string const& what, Stream stream);
std::vector<Op> copy_down(StageProgram& stage, TensorId device, TensorId home, std::string const& what,
                          HostBuffers& buffers);
std::vector<Op> copy_up(StageProgram& stage, TensorId home, TensorId device, std::string const& what,
                        HostBuffers& buffers);

} // namespace foreplan

#include "timing/kernels/attention.hpp"

#include <algorithm>
#include <cmath>

namespace foreplan {

namespace {

constexpr double block = 128; // queries of a thread block
// Share of the longest block that runs when the others are done.
constexpr double tail = 0.8;
// Products of 8-bit inputs, of the time of 16-bit ones: conversions in between keep it above one half.
constexpr double fp8_time = 0.57;
constexpr std::int64_t least_head = 64; // channels

// Work relative to the forward pass. Heads are padded to 64 channels or multiples of `padding`.
struct Pass {
  double products = 1;
  double softmaxes = 1;
  std::int64_t padding = 64;
};
constexpr Pass forward{.products = 1, .softmaxes = 1, .padding = 64};
constexpr Pass backward{.products = 2.5, .softmaxes = 2, .padding = 128};

double padded(std::int64_t size, Pass pass) {
  return static_cast<double>(size <= least_head ? least_head : (size + pass.padding - 1) / pass.padding * pass.padding);
}

double seconds(KernelMachine const& machine, AttentionShape const& shape, Pass pass) {
  double const blocks = std::ceil(static_cast<double>(shape.length) / block); // of one head and sequence
  double const lanes = static_cast<double>(shape.sequences * shape.heads);
  double const key_blocks = shape.keys > 0 ? std::ceil(static_cast<double>(shape.keys) / block) : blocks;
  double const seen = shape.causal ? blocks * (key_blocks + 1) / 2 : blocks * key_blocks;
  double const scores = lanes * seen * block * block;
  double const overhead = lanes * blocks * block * machine.attention_overhead;
  double const size = (padded(shape.key_size, pass) + padded(shape.value_size, pass)) / 2;
  double const channels = pass.products * size * (shape.fp8 ? fp8_time : 1) /
                          (shape.portable ? machine.portable_attention : machine.attention_matrix);
  double const softmax = pass.softmaxes * machine.attention_softmax;

  double const per_channel = 4 / (machine.peak * machine.clock); // seconds of a score's two multiply-adds a channel
  double const all = std::hypot(scores * channels, (scores + overhead) * softmax) * per_channel;
  double const longest = (key_blocks * block + machine.attention_overhead) * block * std::hypot(channels, softmax) *
                         per_channel * machine.multiprocessors;
  return machine.fixed + all + tail * longest;
}

} // namespace

double attention_forward_seconds(KernelMachine const& machine, AttentionShape const& shape) {
  return seconds(machine, shape, forward);
}

double attention_backward_seconds(KernelMachine const& machine, AttentionShape const& shape) {
  return seconds(machine, shape, backward);
}

} // namespace foreplan

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

// FlashAttention-2 on A100, causal, 16384 tokens, forward and backward: 220 and 178 TFLOP/s with heads of 128 channels, 192
// and 163 with 64 (arXiv 2307.08691, figures 5 and 6; together the 189 and 171 of figure 4). In Triton it takes 1.3 to 1.5
// times as long forward and twice as long backward (section 4.1). That makes, of the peak: time = (scores + overhead) *
// hypot(channels / rate, softmax). The overhead is that which explains figure 4 from 512 tokens on (99 TFLOP/s there).
struct TritonPass {
  double products, rate, softmax;
};
constexpr TritonPass triton_forward{.products = 1, .rate = 0.533, .softmax = 82};
constexpr TritonPass triton_backward{.products = 2.5, .rate = 0.295, .softmax = 284};

// At full clock: at a third of the peak a kernel stays below the power limit.
double triton_seconds(KernelMachine const& machine, AttentionShape const& shape, TritonPass pass) {
  constexpr double overhead = 140; // keys
  double const blocks = std::ceil(static_cast<double>(shape.length) / block);
  double const keys = shape.keys > 0 ? std::ceil(static_cast<double>(shape.keys) / block) : blocks;
  double const seen = (shape.causal ? (keys + 1) / 2 : keys) * block;
  double const lanes = static_cast<double>(shape.sequences * shape.heads);
  Pass const padding{.padding = 64};
  double const size = (padded(shape.key_size, padding) + padded(shape.value_size, padding)) / 2;
  double const per_score = std::hypot(pass.products * size / pass.rate, pass.softmax) * 4 /
                           (machine.peak * machine.ampere_rate);
  return machine.fixed + lanes * blocks * block * (seen + overhead) * per_score;
}

} // namespace

double attention_forward_seconds(KernelMachine const& machine, AttentionShape const& shape) {
  if (shape.triton)
    return triton_seconds(machine, shape, triton_forward);
  return seconds(machine, shape, forward);
}

double attention_backward_seconds(KernelMachine const& machine, AttentionShape const& shape) {
  if (shape.triton)
    return triton_seconds(machine, shape, triton_backward);
  return seconds(machine, shape, backward);
}

} // namespace foreplan

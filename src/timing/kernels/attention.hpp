// Time of fused attention (scores, softmax and context in one kernel), alone on the device.
#pragma once

#include "timing/kernels/machine.hpp"

#include <cstdint>

namespace foreplan {

struct AttentionShape {
  std::int64_t sequences = 1;
  std::int64_t length = 0; // queries of a sequence
  std::int64_t keys = 0;   // of a sequence; more than queries under context parallelism, whose balanced chunks see half
                           // of them, as all queries of a sequence do. 0: as many as queries
  std::int64_t heads = 0;  // of queries
  std::int64_t kv_heads = 0;
  std::int64_t key_size = 0;   // channels of a query and key
  std::int64_t value_size = 0; // of a value
  bool causal = true;
  bool fp8 = false;
  bool portable = false; // written for the instructions of Ampere (FlashAttention-2)
  bool triton = false;   // FlashAttention in Triton
};

// Blocks of 128 queries walk over the keys they see. Products (of padded heads) and softmax run side by side: the root
// of the sum of squares. The blocks fill the multiprocessors evenly but for the longest, which is not met by others at
// the end. Heads are padded to multiples of 64 channels.
double attention_forward_seconds(KernelMachine const& machine, AttentionShape const& shape);
// FlashAttention in Triton (flash_attn_triton.py of 2022) is told apart: products and softmax take longer there.
// The same with five products in place of two, and the softmax rebuilt and differentiated; heads of more than 64
// channels are padded to multiples of 128.
double attention_backward_seconds(KernelMachine const& machine, AttentionShape const& shape);

} // namespace foreplan

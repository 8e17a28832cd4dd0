// Which tokens a rank of a context-parallel group holds. Causal attention costs more the later a token is: a sequence is
// cut into 2 n chunks and rank i of n holds chunks i and 2 n - 1 - i, so that all have as much to do (Llama 3, arXiv
// 2407.21783, section 3.3.2; Megatron-LM and Transformer Engine do the same).
#pragma once

#include <cstdint>

namespace foreplan {

// A token of a micro-batch: which of its sequences, and where in it.
struct TokenPlace {
  std::int64_t sequence = 0;
  std::int64_t position = 0;
  friend bool operator==(TokenPlace const&, TokenPlace const&) = default;
};

// Of the row-th token of a rank: sequences of `length` tokens stand one behind the other, each with the rank's two chunks.
inline TokenPlace token_place(std::int64_t row, std::int64_t length, int shards, int shard) {
  if (shards == 1)
    return {row / length, row % length};
  std::int64_t const chunk = length / (std::int64_t{2} * shards);
  std::int64_t const in_sequence = row % (2 * chunk);
  std::int64_t const index = in_sequence < chunk ? shard : std::int64_t{2} * shards - 1 - shard;
  return {row / (2 * chunk), index * chunk + in_sequence % chunk};
}

} // namespace foreplan

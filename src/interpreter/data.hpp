// Training data and initial weights: pure functions of a seed and of what the value belongs to in the model, so that every
// plan sees the same batch and starts from the same model.
#pragma once

#include "program/program.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace foreplan {

// Sequence of the global batch that row `row` of a micro-batch of a data index holds:
// (data index * m + micro-batch) * b + row. The union over ranks and micro-batches is 0..global_batch-1 under every plan.
std::int64_t global_sequence(Plan const& plan, int data_index, std::int64_t micro_batch, std::int64_t row);

// Token `position` (0..s) of a sequence of the global batch of a step; the label of a token is its successor.
std::int64_t token_id(std::uint64_t seed, int step, std::int64_t sequence, std::int64_t position,
                      std::int64_t vocabulary);

// For each element of a rank's shard of a parameter, cut along tp as its placement says, its position in the full one
// (whose order is that of a matrix that is not transposed).
std::vector<std::int64_t> positions_in_full(Parameter const& parameter, int tp_index);

// Initial values of this rank's shard. Norm weights lie around 1, all else around 0; a tied parameter depends on its index
// alone, so that both of its homes are equal.
std::vector<double> initial_shard(std::uint64_t seed, Parameter const& parameter, int layer, bool norm_weight,
                                  int tp_index);

} // namespace foreplan

// Heads of attention as matrices in the layouts of op_kinds.md: qkv [T, g, q + 2, d], o [T, g, q d],
// scores [sequences, g q, s, s], log-sum-exp [T, g q].
#pragma once

#include "validate/devices/cpu/gemm.hpp"
#include "validate/devices/cpu/values.hpp"

#include <cmath>

namespace foreplan::cpu {

struct Heads {
  std::int64_t sequences, length, groups, queries, size; // queries of one KV group; size d
  [[nodiscard]] std::int64_t count() const { return groups * queries; }
  [[nodiscard]] std::int64_t row() const { return groups * (queries + 2) * size; } // of qkv: elements of a token
};

inline Heads heads_of(Op const& op, Operand const& qkv) {
  std::vector<std::int64_t> const& shape = qkv.tensor->shape;
  return {shape[0] / op.sequence_length, op.sequence_length, shape[1], shape[2] - 2, shape[3]};
}

inline float attention_scale(Heads const& heads) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(heads.size)));
}

// s x d: `member` of a KV group (0..q-1 the queries, q the key, q + 1 the value) in qkv or its gradient.
inline Matrix in_qkv(Heads const& heads, Operand const& qkv, std::int64_t sequence, std::int64_t group,
                     std::int64_t member) {
  std::int64_t const at = sequence * heads.length * heads.row() + (group * (heads.queries + 2) + member) * heads.size;
  return {address(qkv, at), dtype(qkv), heads.length, heads.size, heads.row()};
}

// s x d: `head` (of all) in the context or its gradient.
inline Matrix in_context(Heads const& heads, Operand const& o, std::int64_t sequence, std::int64_t head) {
  std::int64_t const row = heads.count() * heads.size;
  return {address(o, sequence * heads.length * row + head * heads.size), dtype(o), heads.length, heads.size, row};
}

// s x s
inline Matrix in_scores(Heads const& heads, Operand const& scores, std::int64_t sequence, std::int64_t head) {
  std::int64_t const s = heads.length;
  return {address(scores, (sequence * heads.count() + head) * s * s), dtype(scores), s, s, s};
}

// Rows [first, first + count).
inline Matrix rows_of(Matrix const& matrix, std::int64_t first, std::int64_t count) {
  char* data = static_cast<char*>(matrix.data) + first * matrix.stride * size_of(matrix.dtype);
  return {data, matrix.dtype, count, matrix.columns, matrix.stride};
}

} // namespace foreplan::cpu

// Attention with stored scores: products of whole heads, and the softmax between them.
#include "validate/devices/cpu/elementary.hpp"
#include "validate/devices/cpu/heads.hpp"
#include "validate/devices/cpu/kernels.hpp"
#include "validate/devices/cpu/runs.hpp"

#include <vector>

namespace foreplan::cpu {
namespace {

// Calls visit(sequence, group, query, head) for every head of every sequence, in parallel.
template <class Visit>
void for_each_head(Heads const& heads, Visit const& visit) {
  parallel_items(heads.sequences * heads.count(), [&](std::int64_t item) {
    std::int64_t const head = item % heads.count();
    visit(item / heads.count(), head / heads.queries, head % heads.queries, head);
  });
}

// The same for what adds to the keys' and values' gradients: a group's heads one after another on one thread.
template <class Visit>
void for_each_group(Heads const& heads, Visit const& visit) {
  parallel_items(heads.sequences * heads.groups, [&](std::int64_t item) {
    std::int64_t const group = item % heads.groups;
    for (std::int64_t query = 0; query < heads.queries; ++query)
      visit(item / heads.groups, group, query, group * heads.queries + query);
  });
}

// Calls body(query, first element) for every row of scores.
template <class Body>
void for_each_row(Operand const& scores, Body const& body) {
  std::int64_t const s = scores.tensor->shape.back();
  parallel_ranges(size(scores) / s, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> a(static_cast<std::size_t>(s)), b(a.size()), out(a.size());
    for (std::int64_t row = begin; row < end; ++row)
      body(row % s, row * s, s, a.data(), b.data(), out.data());
  });
}

} // namespace

void attention_scores(Op const& op, Operands reads, Operands writes) {
  Heads const heads = heads_of(op, reads[0]);
  for_each_head(heads, [&](std::int64_t sequence, std::int64_t group, std::int64_t query, std::int64_t head) {
    multiply(in_qkv(heads, reads[0], sequence, group, query),
             transpose(in_qkv(heads, reads[0], sequence, group, heads.queries)),
             in_scores(heads, writes[0], sequence, head));
  });
}

void attention_softmax(Op const& op, Operands reads, Operands writes) {
  auto const scale = static_cast<float>(op.scale);
  for_each_row(reads[0], [&](std::int64_t query, std::int64_t at, std::int64_t s, float* in, float*, float* out) {
    float const* scores = load(reads[0], at, s, in);
    float* p = target(writes[0], at, out);
    float highest = -INFINITY;
#pragma omp simd reduction(max : highest)
    for (std::int64_t k = 0; k <= query; ++k)
      highest = std::max(highest, scores[k] * scale);
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t k = 0; k <= query; ++k) {
      p[k] = exponential_of_negative(scores[k] * scale - highest);
      total += p[k];
    }
    for (std::int64_t k = 0; k <= query; ++k)
      p[k] /= total;
    std::fill(p + query + 1, p + s, 0.0F);
    store(writes[0], at, s, p);
  });
}

void attention_context(Op const& op, Operands reads, Operands writes) {
  Heads const heads = heads_of(op, reads[1]);
  for_each_head(heads, [&](std::int64_t sequence, std::int64_t group, std::int64_t, std::int64_t head) {
    multiply(in_scores(heads, reads[0], sequence, head), in_qkv(heads, reads[1], sequence, group, heads.queries + 1),
             in_context(heads, writes[0], sequence, head));
  });
}

void attention_context_backward(Op const& op, Operands reads, Operands writes) {
  Operand const& dqkv = writes[1];
  Heads const heads = heads_of(op, reads[1]);
  zero_fill(dqkv);
  for_each_group(heads, [&](std::int64_t sequence, std::int64_t group, std::int64_t query, std::int64_t head) {
    Matrix const d_o = in_context(heads, reads[2], sequence, head);
    multiply(d_o, transpose(in_qkv(heads, reads[1], sequence, group, heads.queries + 1)),
             in_scores(heads, writes[0], sequence, head));
    multiply(transpose(in_scores(heads, reads[0], sequence, head)), d_o,
             in_qkv(heads, dqkv, sequence, group, heads.queries + 1), query > 0);
  });
}

void attention_softmax_backward(Op const& op, Operands reads, Operands writes) {
  auto const scale = static_cast<float>(op.scale);
  for_each_row(reads[0], [&](std::int64_t, std::int64_t at, std::int64_t s, float* a, float* b, float* out) {
    float const* p = load(reads[0], at, s, a);
    float const* dp = load(reads[1], at, s, b);
    float* dscores = target(writes[0], at, out);
    float const dot = sum(s, [p, dp](std::int64_t k) { return p[k] * dp[k]; });
    for (std::int64_t k = 0; k < s; ++k)
      dscores[k] = p[k] * (dp[k] - dot) * scale;
    store(writes[0], at, s, dscores);
  });
}

void attention_scores_backward(Op const& op, Operands reads, Operands writes) {
  Heads const heads = heads_of(op, reads[0]);
  for_each_group(heads, [&](std::int64_t sequence, std::int64_t group, std::int64_t query, std::int64_t head) {
    Matrix const dscores = in_scores(heads, reads[1], sequence, head);
    multiply(dscores, in_qkv(heads, reads[0], sequence, group, heads.queries),
             in_qkv(heads, writes[0], sequence, group, query), true);
    multiply(transpose(dscores), in_qkv(heads, reads[0], sequence, group, query),
             in_qkv(heads, writes[0], sequence, group, heads.queries), true);
  });
}

} // namespace foreplan::cpu

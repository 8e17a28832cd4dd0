// Attention in tiles, never storing the s x s scores (FlashAttention-2, arXiv:2307.08691, algorithms 1 and 2): forward by
// tiles of queries with a running maximum and sum, backward with probabilities rebuilt from the log-sum-exp.
// The products are oneDNN's; scores and sums are fp32, probabilities of the tensors' dtype.
#include "validate/devices/cpu/elementary.hpp"
#include "validate/devices/cpu/heads.hpp"
#include "validate/devices/cpu/kernels.hpp"
#include "validate/devices/cpu/runs.hpp"

#include <algorithm>
#include <vector>

namespace foreplan::cpu {
namespace {

// Rows and columns of a tile: scores (64 KiB), probabilities and the operands of a tile stay in the second-level cache.
constexpr std::int64_t query_tile = 128;
constexpr std::int64_t key_tile = 256;

// Scratch of one thread, fp32 or bytes.
class Scratch {
public:
  Matrix fp32_matrix(std::int64_t rows, std::int64_t columns) { return matrix(DType::fp32, rows, columns); }
  Matrix matrix(DType dtype, std::int64_t rows, std::int64_t columns) {
    auto& data = parts_.emplace_back(static_cast<std::size_t>((rows * columns * size_of(dtype) + 63) / 64 * 64 / 4));
    return {data.data(), dtype, rows, columns, columns};
  }

private:
  std::vector<std::vector<float>> parts_;
};

float* row(Matrix const& matrix, std::int64_t i) { return static_cast<float*>(matrix.data) + i * matrix.stride; }

Matrix top_left(Matrix const& matrix, std::int64_t rows, std::int64_t columns) {
  return {matrix.data, matrix.dtype, rows, columns, matrix.stride};
}

void put_row(Matrix const& to, std::int64_t i, float const* values, std::int64_t count) {
  from_floats(values, to.dtype, count, static_cast<char*>(to.data) + i * to.stride * size_of(to.dtype));
}

// dtype's fp32 image of a row.
float const* get_row(Matrix const& from, std::int64_t i, float* scratch) {
  if (from.dtype == DType::fp32)
    return row(from, i);
  to_floats(static_cast<char const*>(from.data) + i * from.stride * size_of(from.dtype), from.dtype, from.columns,
            scratch);
  return scratch;
}

// Keys of a tile that query i of the tile sees.
std::int64_t seen(std::int64_t query, std::int64_t first_key, std::int64_t keys) {
  return std::clamp(query - first_key + 1, std::int64_t{0}, keys);
}

// ------------------------------------------------------------------------------------------------------------ forward

// The running softmax of a tile of queries.
struct Running {
  std::array<float, query_tile> maximum;
  std::array<float, query_tile> sum;
};

// Turns a row of raw scores into exponentials against the new maximum; returns the factor of what was there before.
float advance(Running& running, std::int64_t i, float* scores, std::int64_t visible, std::int64_t keys, float scale) {
  auto const at = static_cast<std::size_t>(i);
  float highest = running.maximum[at];
#pragma omp simd reduction(max : highest)
  for (std::int64_t k = 0; k < visible; ++k)
    highest = std::max(highest, scores[k] * scale);
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t k = 0; k < visible; ++k) {
    scores[k] = exponential_of_negative(scores[k] * scale - highest);
    total += scores[k];
  }
  std::fill(scores + visible, scores + keys, 0.0F);
  float const factor = exponential_of_negative(running.maximum[at] - highest);
  running.maximum[at] = highest;
  running.sum[at] = running.sum[at] * factor + total;
  return factor;
}

struct ForwardTile {
  Matrix scores, probabilities, context;
};

void forward_tile(ForwardTile const& work, Matrix const& q, Matrix const& k, Matrix const& v, Matrix const& o,
                  float* lse, std::int64_t lse_stride, std::int64_t first, float scale) {
  std::int64_t const count = std::min(query_tile, q.rows - first);
  Matrix const queries = rows_of(q, first, count);
  Matrix const context = top_left(work.context, count, q.columns);
  Running running;
  running.maximum.fill(-INFINITY);
  running.sum.fill(0);
  for (std::int64_t key = 0; key < first + count; key += key_tile) {
    std::int64_t const keys = std::min(key_tile, k.rows - key);
    Matrix const scores = top_left(work.scores, count, keys);
    Matrix const probabilities = top_left(work.probabilities, count, keys);
    multiply(queries, transpose(rows_of(k, key, keys)), scores);
    for (std::int64_t i = 0; i < count; ++i) {
      float const factor = advance(running, i, row(scores, i), seen(first + i, key, keys), keys, scale);
      put_row(probabilities, i, row(scores, i), keys);
      if (key > 0 && factor != 1)
        for (std::int64_t c = 0; c < q.columns; ++c)
          row(context, i)[c] *= factor;
    }
    multiply(probabilities, rows_of(v, key, keys), context, key > 0);
  }
  Matrix const out = rows_of(o, first, count);
  for (std::int64_t i = 0; i < count; ++i) {
    auto const at = static_cast<std::size_t>(i);
    for (std::int64_t c = 0; c < q.columns; ++c)
      row(context, i)[c] /= running.sum[at];
    put_row(out, i, row(context, i), q.columns);
    lse[(first + i) * lse_stride] = running.maximum[at] + std::log(running.sum[at]);
  }
}

// ----------------------------------------------------------------------------------------------------------- backward

struct BackwardTile {
  Matrix scores, gradients;              // raw scores and d probabilities, fp32
  Matrix probabilities, score_gradients; // of the tensors' dtype
};

struct BackwardHead {
  Matrix q{}, k{}, v{}, d_o{}; // s x d
  Matrix dq{}, dk{}, dv{};     // sums, fp32
  float const* lse = nullptr;  // one a token, at a distance of lse_stride
  std::int64_t lse_stride = 0;
  std::vector<float> const* dot = nullptr; // o . do of every query
};

void backward_tile(BackwardTile const& work, BackwardHead const& head, std::int64_t first, std::int64_t key,
                   float scale) {
  std::int64_t const count = std::min(query_tile, head.q.rows - first);
  std::int64_t const keys = std::min(key_tile, head.k.rows - key);
  Matrix const q = rows_of(head.q, first, count), k = rows_of(head.k, key, keys);
  Matrix const d_o = rows_of(head.d_o, first, count);
  Matrix const scores = top_left(work.scores, count, keys), gradients = top_left(work.gradients, count, keys);
  Matrix const p = top_left(work.probabilities, count, keys), ds = top_left(work.score_gradients, count, keys);
  multiply(q, transpose(k), scores);
  multiply(d_o, transpose(rows_of(head.v, key, keys)), gradients);
  for (std::int64_t i = 0; i < count; ++i) {
    float* s = row(scores, i);
    float* g = row(gradients, i);
    std::int64_t const visible = seen(first + i, key, keys);
    float const lse = head.lse[(first + i) * head.lse_stride];
    float const dot = (*head.dot)[static_cast<std::size_t>(first + i)];
#pragma omp simd
    for (std::int64_t j = 0; j < visible; ++j) {
      s[j] = exponential(s[j] * scale - lse);
      g[j] = s[j] * (g[j] - dot) * scale;
    }
    std::fill(s + visible, s + keys, 0.0F);
    std::fill(g + visible, g + keys, 0.0F);
    put_row(p, i, s, keys);
    put_row(ds, i, g, keys);
  }
  multiply(transpose(p), d_o, rows_of(head.dv, key, keys), true);
  multiply(ds, k, rows_of(head.dq, first, count), true);
  multiply(transpose(ds), q, rows_of(head.dk, key, keys), true);
}

// o . do of every query: the sum of p . dp over its keys.
std::vector<float> dots(Matrix const& o, Matrix const& d_o) {
  std::vector<float> result(static_cast<std::size_t>(o.rows)), a(static_cast<std::size_t>(o.columns)), b(a.size());
  for (std::int64_t i = 0; i < o.rows; ++i) {
    float const* x = get_row(o, i, a.data());
    float const* y = get_row(d_o, i, b.data());
    result[static_cast<std::size_t>(i)] = sum(o.columns, [x, y](std::int64_t c) { return x[c] * y[c]; });
  }
  return result;
}

void clear(Matrix const& matrix) { std::fill_n(row(matrix, 0), matrix.rows * matrix.columns, 0.0F); }

void put(Matrix const& to, Matrix const& from) {
  for (std::int64_t i = 0; i < to.rows; ++i)
    put_row(to, i, row(from, i), to.columns);
}

} // namespace

void attention_forward(Op const& op, Operands reads, Operands writes) {
  Operand const& qkv = reads[0];
  Heads const heads = heads_of(op, qkv);
  std::int64_t const tiles = (heads.length + query_tile - 1) / query_tile;
  parallel_items(heads.sequences * heads.count() * tiles, [&](std::int64_t item) {
    thread_local Scratch scratch;
    thread_local ForwardTile work;
    if (work.context.columns != heads.size || work.probabilities.dtype != dtype(qkv)) {
      scratch = {};
      work = {scratch.fp32_matrix(query_tile, key_tile), scratch.matrix(dtype(qkv), query_tile, key_tile),
              scratch.fp32_matrix(query_tile, heads.size)};
    }
    std::int64_t const tile = tiles - 1 - item % tiles; // long ones first
    std::int64_t const head = item / tiles % heads.count();
    std::int64_t const sequence = item / tiles / heads.count();
    std::int64_t const group = head / heads.queries;
    float* lse = fp32(writes[1]) + sequence * heads.length * heads.count() + head;
    forward_tile(work, in_qkv(heads, qkv, sequence, group, head % heads.queries),
                 in_qkv(heads, qkv, sequence, group, heads.queries),
                 in_qkv(heads, qkv, sequence, group, heads.queries + 1), in_context(heads, writes[0], sequence, head),
                 lse, heads.count(), tile * query_tile, attention_scale(heads));
  });
}

// One KV group of one sequence is one thread's: its queries add to the same key and value gradients.
void attention_backward(Op const& op, Operands reads, Operands writes) {
  Operand const& qkv = reads[0];
  Operand const& dqkv = writes[0];
  Heads const heads = heads_of(op, qkv);
  std::int64_t const s = heads.length;
  parallel_items(heads.sequences * heads.groups, [&](std::int64_t item) {
    std::int64_t const sequence = item / heads.groups;
    std::int64_t const group = item % heads.groups;
    Scratch scratch;
    BackwardTile const work{scratch.fp32_matrix(query_tile, key_tile), scratch.fp32_matrix(query_tile, key_tile),
                            scratch.matrix(dtype(qkv), query_tile, key_tile),
                            scratch.matrix(dtype(qkv), query_tile, key_tile)};
    BackwardHead part{.dq = scratch.fp32_matrix(s, heads.size),
                      .dk = scratch.fp32_matrix(s, heads.size),
                      .dv = scratch.fp32_matrix(s, heads.size)};
    part.k = in_qkv(heads, qkv, sequence, group, heads.queries);
    part.v = in_qkv(heads, qkv, sequence, group, heads.queries + 1);
    part.lse_stride = heads.count();
    for (std::int64_t query = 0; query < heads.queries; ++query) {
      std::int64_t const head = group * heads.queries + query;
      part.q = in_qkv(heads, qkv, sequence, group, query);
      part.d_o = in_context(heads, reads[3], sequence, head);
      part.lse = fp32(reads[2]) + sequence * s * heads.count() + head;
      std::vector<float> const dot = dots(in_context(heads, reads[1], sequence, head), part.d_o);
      part.dot = &dot;
      clear(part.dq);
      for (std::int64_t key = 0; key < s; key += key_tile)
        for (std::int64_t first = key / query_tile * query_tile; first < s; first += query_tile)
          backward_tile(work, part, first, key, attention_scale(heads));
      put(in_qkv(heads, dqkv, sequence, group, query), part.dq);
    }
    put(in_qkv(heads, dqkv, sequence, group, heads.queries), part.dk);
    put(in_qkv(heads, dqkv, sequence, group, heads.queries + 1), part.dv);
  });
}

} // namespace foreplan::cpu

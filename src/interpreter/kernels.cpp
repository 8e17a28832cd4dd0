#include "interpreter/kernels.hpp"

#include "interpreter/quantize_kernels.hpp"
#include "program/token_layout.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace foreplan {
namespace {

constexpr double norm_epsilon = 1e-5;
constexpr double rope_base = 10000;

template <class Scalar>
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class Scalar>
using MatrixMap = Eigen::Map<Matrix<Scalar>, 0, Eigen::OuterStride<>>; // rows may be apart
template <class Scalar>
using ArrayMap = Eigen::Map<Eigen::Array<Scalar, Eigen::Dynamic, 1>>;
template <class Scalar>
using Views = std::span<View<Scalar> const>;

template <class Scalar>
MatrixMap<Scalar> matrix(Scalar* data, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return {data, rows, columns, Eigen::OuterStride<>(stride)};
}

// The tensor as a matrix of tokens by everything else.
template <class Scalar>
MatrixMap<Scalar> by_token(View<Scalar> const& view) {
  return matrix(view.data, view.rows(), view.columns(), view.columns());
}

// A weight (in, out...) as (in, out); transposed, (out..., in) as (out, in).
template <class Scalar>
MatrixMap<Scalar> weight_matrix(Op const& op, View<Scalar> const& view) {
  std::int64_t const rows = op.transposed ? view.elements() / view.tensor->shape.back() : view.rows();
  std::int64_t const columns = op.transposed ? view.tensor->shape.back() : view.columns();
  return matrix(view.data, rows, columns, columns);
}

template <class Scalar>
ArrayMap<Scalar> flat(View<Scalar> const& view) {
  return {view.data, view.elements()};
}

[[noreturn]] void refuse(Op const& op, std::string const& what) {
  throw std::runtime_error("op '" + op.name + "': " + what);
}

template <class Scalar>
void require_equal_sizes(Op const& op, Views<Scalar> views) {
  for (View<Scalar> const& view : views)
    if (view.elements() != views.front().elements())
      refuse(op, "operands of different sizes");
}

// Index of the shard's first element along `dimension`; 0 when that dimension is whole on the rank.
template <class Scalar>
std::int64_t first_of_shard(View<Scalar> const& view, int dimension, Coordinate const& coordinate) {
  AxisPlacement const placement = view.tensor->placement[Axis::tp];
  bool const cut = placement.kind == AxisPlacement::Kind::sharded && placement.dimension == dimension;
  return cut ? coordinate.tp * view.size(static_cast<std::size_t>(dimension)) : 0;
}

// Of row `t` of a token tensor that holds this rank's tokens, or with sequence parallelism part of them.
template <class Scalar>
std::int64_t position_of(Op const& op, View<Scalar> const& view, std::int64_t t, Coordinate const& coordinate) {
  return token_place(first_of_shard(view, 0, coordinate) + t, op.sequence_length, op.context_shards, coordinate.cp)
      .position;
}

template <class Scalar>
std::int64_t whole(Scalar value) {
  return static_cast<std::int64_t>(value);
}

// ----------------------------------------------------------------------------------------------- ends of the network

template <class Scalar>
void embedding_forward(Views<Scalar> reads, Views<Scalar> writes, KernelContext const& context) {
  auto const table = by_token(reads[1]);
  auto y = by_token(writes[0]);
  std::int64_t const first = first_of_shard(reads[1], 0, context.coordinate);
  for (std::int64_t t = 0; t < y.rows(); ++t) {
    std::int64_t const row = whole(reads[0].data[t]) - first;
    if (0 <= row && row < table.rows())
      y.row(t) = table.row(row);
    else
      y.row(t).setZero();
  }
}

template <class Scalar>
void embedding_backward(Views<Scalar> reads, Views<Scalar> writes, KernelContext const& context) {
  auto const dy = by_token(reads[1]);
  auto dtable = by_token(writes[0]);
  std::int64_t const first = first_of_shard(writes[0], 0, context.coordinate);
  for (std::int64_t t = 0; t < dy.rows(); ++t) {
    std::int64_t const row = whole(reads[0].data[t]) - first;
    if (0 <= row && row < dtable.rows())
      dtable.row(row) += dy.row(t);
  }
}

template <class Scalar>
void add_positions(Op const& op, Views<Scalar> reads, Views<Scalar> writes, KernelContext const& context) {
  auto const x = by_token(reads[0]);
  auto const table = by_token(reads[1]);
  auto y = by_token(writes[0]);
  for (std::int64_t t = 0; t < x.rows(); ++t)
    y.row(t) = x.row(t) + table.row(position_of(op, reads[0], t, context.coordinate));
}

template <class Scalar>
void position_gradient(Op const& op, Views<Scalar> reads, Views<Scalar> writes, KernelContext const& context) {
  auto const dy = by_token(reads[0]);
  auto dtable = by_token(writes[0]);
  for (std::int64_t t = 0; t < dy.rows(); ++t)
    dtable.row(position_of(op, reads[0], t, context.coordinate)) += dy.row(t);
}

template <class Scalar>
void loss_maximum(Views<Scalar> reads, Views<Scalar> writes) {
  auto const logits = by_token(reads[0]);
  for (std::int64_t t = 0; t < logits.rows(); ++t)
    writes[0].data[t] = logits.row(t).template maxCoeff<Eigen::PropagateNaN>();
}

template <class Scalar>
void loss_sums(Views<Scalar> reads, Views<Scalar> writes, KernelContext const& context) {
  auto const logits = by_token(reads[0]);
  Scalar const* labels = reads[1].data;
  Scalar const* maximum = reads[2].data;
  std::int64_t const first = first_of_shard(reads[0], 1, context.coordinate);
  for (std::int64_t t = 0; t < logits.rows(); ++t) {
    std::int64_t const column = whole(labels[t]) - first;
    bool const mine = 0 <= column && column < logits.cols();
    writes[0].data[2 * t] = mine ? logits(t, column) - maximum[t] : Scalar(0);
    writes[0].data[2 * t + 1] = (logits.row(t).array() - maximum[t]).exp().sum();
  }
}

template <class Scalar>
void loss_forward(Op const& op, Views<Scalar> reads, Views<Scalar> writes) {
  auto const sums = by_token(reads[0]);
  Scalar total = 0;
  for (std::int64_t t = 0; t < sums.rows(); ++t)
    total += std::log(sums(t, 1)) - sums(t, 0);
  writes[0].data[0] += static_cast<Scalar>(op.scale) * total;
}

template <class Scalar>
void loss_backward(Op const& op, Views<Scalar> reads, Views<Scalar> writes, KernelContext const& context) {
  auto const logits = by_token(reads[0]);
  Scalar const* labels = reads[1].data;
  Scalar const* maximum = reads[2].data;
  auto const sums = by_token(reads[3]);
  auto dlogits = by_token(writes[0]);
  auto const scale = static_cast<Scalar>(op.scale);
  std::int64_t const first = first_of_shard(reads[0], 1, context.coordinate);
  for (std::int64_t t = 0; t < logits.rows(); ++t) {
    dlogits.row(t) = ((logits.row(t).array() - maximum[t]).exp() * (scale / sums(t, 1))).matrix();
    std::int64_t const column = whole(labels[t]) - first;
    if (0 <= column && column < logits.cols())
      dlogits(t, column) -= scale;
  }
}

// ------------------------------------------------------------------------------------------------------------- norms

template <class Row, class Scalar = typename Row::Scalar>
Scalar mean_of(Row const& row, bool layer_norm) {
  return layer_norm ? row.mean() : Scalar(0);
}

template <class Row, class Scalar = typename Row::Scalar>
Scalar inverse_deviation(Row const& row, Scalar mean) {
  return 1 / std::sqrt((row.array() - mean).square().mean() + static_cast<Scalar>(norm_epsilon));
}

template <class Scalar>
void norm_forward(Views<Scalar> reads, Views<Scalar> writes) {
  bool const layer_norm = reads.size() == 3;
  auto const x = by_token(reads[0]);
  auto const weight = flat(reads[1]).transpose();
  auto y = by_token(writes[0]);
  for (std::int64_t t = 0; t < x.rows(); ++t) {
    Scalar const mean = mean_of(x.row(t), layer_norm);
    y.row(t) = ((x.row(t).array() - mean) * inverse_deviation(x.row(t), mean) * weight).matrix();
    if (layer_norm)
      y.row(t).array() += flat(reads[2]).transpose();
  }
}

// With z the normalised x and u = dy . w: dx = (u - mean(u) - z mean(u z)) / deviation; rms_norm has no mean(u).
// Operands: dy, x, weight, [dresidual], rw dweight, [rw dbias] -> dx, dweight, [dbias].
template <class Scalar>
void norm_backward(Views<Scalar> reads, Views<Scalar> writes) {
  bool const layer_norm = writes.size() == 3;
  bool const has_residual = reads.size() == 3 + writes.size();
  auto const dy = by_token(reads[0]);
  auto const x = by_token(reads[1]);
  auto const weight = flat(reads[2]).transpose();
  auto dx = by_token(writes[0]);
  auto dweight = flat(writes[1]);
  Eigen::Array<Scalar, 1, Eigen::Dynamic> normalised(x.cols());
  Eigen::Array<Scalar, 1, Eigen::Dynamic> u(x.cols());
  for (std::int64_t t = 0; t < x.rows(); ++t) {
    Scalar const mean = mean_of(x.row(t), layer_norm);
    Scalar const inverse = inverse_deviation(x.row(t), mean);
    normalised = (x.row(t).array() - mean) * inverse;
    u = dy.row(t).array() * weight;
    dweight += (dy.row(t).array() * normalised).transpose();
    if (layer_norm)
      flat(writes[2]) += dy.row(t).array().transpose();
    u = (u - mean_of(u, layer_norm) - normalised * (u * normalised).mean()) * inverse;
    if (has_residual)
      u += by_token(reads[3]).row(t).array();
    dx.row(t) = u.matrix();
  }
}

// ----------------------------------------------------------------------------------------------------------- linears

template <class Scalar>
void linear_forward(Op const& op, Views<Scalar> reads, Views<Scalar> writes) {
  auto const x = by_token(reads[0]);
  auto const weight = weight_matrix(op, reads[1]);
  auto y = by_token(writes[0]);
  if (op.transposed)
    y.noalias() = x * weight.transpose();
  else
    y.noalias() = x * weight;
  if (reads.size() > 2)
    y.array().rowwise() += flat(reads[2]).transpose();
}

template <class Scalar>
void linear_input_gradient(Op const& op, Views<Scalar> reads, Views<Scalar> writes) {
  auto const dy = by_token(reads[0]);
  auto const weight = weight_matrix(op, reads[1]);
  auto dx = by_token(writes[0]);
  if (op.transposed)
    dx.noalias() = dy * weight;
  else
    dx.noalias() = dy * weight.transpose();
}

template <class Scalar>
void linear_weight_gradient(Op const& op, Views<Scalar> reads, Views<Scalar> writes) {
  auto const x = by_token(reads[0]);
  auto const dy = by_token(reads[1]);
  auto dweight = weight_matrix(op, writes[0]);
  if (reads.size() < 2 + writes.size()) // the accumulated gradient is not read
    dweight.setZero();
  if (op.transposed)
    dweight.noalias() += dy.transpose() * x;
  else
    dweight.noalias() += x.transpose() * dy;
  if (writes.size() > 1)
    flat(writes[1]) += dy.colwise().sum().transpose().array();
}

// -------------------------------------------------------------------------------------------------- rope, attention

// qkv is [T, g, q + 2, d].
struct HeadShape {
  std::int64_t tokens, groups, queries, size; // queries of one KV group
  [[nodiscard]] std::int64_t heads() const { return groups * queries; }
  [[nodiscard]] std::int64_t row() const { return groups * (queries + 2) * size; } // of qkv, elements of one token
  [[nodiscard]] std::int64_t at(std::int64_t group, std::int64_t member) const {   // in the row
    return (group * (queries + 2) + member) * size;
  }
};

template <class Scalar>
HeadShape heads_of(View<Scalar> const& qkv) {
  return {qkv.size(0), qkv.size(1), qkv.size(2) - 2, qkv.size(3)};
}

template <class Scalar>
void rotate(Scalar* head, std::int64_t size, std::int64_t position, double direction) {
  for (std::int64_t i = 0; i < size / 2; ++i) {
    double const theta = static_cast<double>(position) *
                         std::pow(rope_base, -2.0 * static_cast<double>(i) / static_cast<double>(size));
    auto const cosine = static_cast<Scalar>(std::cos(theta));
    auto const sine = static_cast<Scalar>(direction * std::sin(theta));
    Scalar const a = head[i];
    Scalar const b = head[i + size / 2];
    head[i] = a * cosine - b * sine;
    head[i + size / 2] = b * cosine + a * sine;
  }
}

// direction 1: forward; -1: the inverse rotation
template <class Scalar>
void rope(Op const& op, Views<Scalar> reads, Views<Scalar> writes, KernelContext const& context, double direction) {
  HeadShape const shape = heads_of(reads[0]);
  if (writes[0].data != reads[0].data)
    flat(writes[0]) = flat(reads[0]);
  for (std::int64_t t = 0; t < shape.tokens; ++t)
    for (std::int64_t group = 0; group < shape.groups; ++group)
      for (std::int64_t member = 0; member <= shape.queries; ++member) // the queries and, last, the key
        rotate(writes[0].data + t * shape.row() + shape.at(group, member), shape.size,
               position_of(op, reads[0], t, context.coordinate), direction);
}

// One head of one sequence: where its matrices of s rows lie.
template <class Scalar>
struct Head {
  HeadShape shape;
  std::int64_t length; // s
  std::int64_t sequence, group, query;

  [[nodiscard]] MatrixMap<Scalar> in_qkv(View<Scalar> const& qkv, std::int64_t member) const {
    return matrix(qkv.data + sequence * length * shape.row() + shape.at(group, member), length, shape.size,
                  shape.row());
  }
  [[nodiscard]] MatrixMap<Scalar> q(View<Scalar> const& qkv) const { return in_qkv(qkv, query); }
  [[nodiscard]] MatrixMap<Scalar> k(View<Scalar> const& qkv) const { return in_qkv(qkv, shape.queries); }
  [[nodiscard]] MatrixMap<Scalar> v(View<Scalar> const& qkv) const { return in_qkv(qkv, shape.queries + 1); }
  [[nodiscard]] std::int64_t index() const { return group * shape.queries + query; }
  [[nodiscard]] MatrixMap<Scalar> in_context(View<Scalar> const& o) const { // [T, heads, d]
    std::int64_t const row = shape.heads() * shape.size;
    return matrix(o.data + sequence * length * row + index() * shape.size, length, shape.size, row);
  }
  [[nodiscard]] MatrixMap<Scalar> in_scores(View<Scalar> const& scores) const { // [sequences, heads, s, s]
    return matrix(scores.data + (sequence * shape.heads() + index()) * length * length, length, length, length);
  }
};

template <class Scalar, class Visit>
void for_each_head(Op const& op, View<Scalar> const& qkv, Visit visit) {
  HeadShape const shape = heads_of(qkv);
  for (std::int64_t sequence = 0; sequence < shape.tokens / op.sequence_length; ++sequence)
    for (std::int64_t group = 0; group < shape.groups; ++group)
      for (std::int64_t query = 0; query < shape.queries; ++query)
        visit(Head<Scalar>{shape, op.sequence_length, sequence, group, query});
}

// Softmax of scale * scores over keys <= query, in place; 0 beyond. `lse`, if not null, takes the log of each row's sum
// of exponentials at a distance of `lse_stride`.
template <class Scalar, class Scores>
void causal_softmax(Scores&& scores, Scalar scale, Scalar* lse, std::int64_t lse_stride) {
  for (std::int64_t i = 0; i < scores.rows(); ++i) {
    auto row = scores.row(i).head(i + 1).array();
    row *= scale;
    Scalar const maximum = row.template maxCoeff<Eigen::PropagateNaN>();
    row = (row - maximum).exp();
    Scalar const sum = row.sum();
    row /= sum;
    scores.row(i).tail(scores.cols() - i - 1).setZero();
    if (lse != nullptr)
      lse[i * lse_stride] = maximum + std::log(sum);
  }
}

// dscores = p . (dp - sum of p . dp) * scale; may be in place of dp.
template <class Scalar, class Probabilities, class Gradient, class Scores>
void softmax_gradient(Probabilities const& p, Gradient const& dp, Scores&& dscores, Scalar scale) {
  for (std::int64_t i = 0; i < p.rows(); ++i) {
    Scalar const dot = p.row(i).dot(dp.row(i));
    dscores.row(i) = (p.row(i).array() * (dp.row(i).array() - dot) * scale).matrix();
  }
}

template <class Scalar>
Scalar attention_scale(View<Scalar> const& qkv) {
  return static_cast<Scalar>(1 / std::sqrt(static_cast<double>(qkv.size(3))));
}

// -------------------------------------------------------------------------------------- attention under context parallelism

// Rows of a token tensor that belong to one sequence, and their positions.
struct SequenceRows {
  std::vector<std::int64_t> row;
  std::vector<std::int64_t> position;
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(row.size()); }
};

// `shard`: whose tokens the tensor holds; -1: those of all ranks of the cp group, rank by rank.
SequenceRows rows_of(Op const& op, std::int64_t rows, std::int64_t sequence, int shard) {
  SequenceRows result;
  int const shards = op.context_shards;
  std::int64_t const length = op.sequence_length / shards; // tokens of the sequence on a rank
  std::int64_t const rank_rows = shard < 0 ? rows / shards : rows;
  for (int i = shard < 0 ? 0 : shard; i < (shard < 0 ? shards : shard + 1); ++i)
    for (std::int64_t t = 0; t < length; ++t) {
      std::int64_t const row = sequence * length + t;
      result.row.push_back(row + (shard < 0 ? i * rank_rows : 0));
      result.position.push_back(token_place(row, op.sequence_length, shards, i).position);
    }
  return result;
}

template <class Scalar>
int shard_of(View<Scalar> const& view, int shard) {
  return view.tensor->placement[Axis::cp] == sharded(0) ? shard : -1;
}

// Columns [first, first + size) of a matrix of `stride` columns, at some of its rows.
template <class Scalar>
Matrix<Scalar> at_rows(Scalar const* data, std::int64_t stride, std::int64_t first, std::int64_t size,
                       SequenceRows const& rows) {
  Matrix<Scalar> result(rows.size(), size);
  for (std::int64_t i = 0; i < rows.size(); ++i)
    result.row(i) = Eigen::Map<Eigen::Matrix<Scalar, 1, Eigen::Dynamic> const>(
        data + rows.row[static_cast<std::size_t>(i)] * stride + first, size);
  return result;
}

template <class Scalar>
void add_at_rows(Matrix<Scalar> const& values, Scalar* data, std::int64_t stride, std::int64_t first,
                 SequenceRows const& rows) {
  for (std::int64_t i = 0; i < rows.size(); ++i)
    Eigen::Map<Eigen::Matrix<Scalar, 1, Eigen::Dynamic>>(data + rows.row[static_cast<std::size_t>(i)] * stride + first,
                                                         values.cols()) += values.row(i);
}

// Attention of one head: where its columns are in queries (qkv), keys and values (kv, or qkv), output and lse.
struct SharedHead {
  std::int64_t q_stride, q, kv_stride, k, v, size, heads, index;
};

// Calls visit(head, rows of queries, rows of keys) for every sequence and head. `kv`: qkv itself, or keys and values.
template <class Scalar, class Visit>
void for_each_shared_head(Op const& op, View<Scalar> const& qkv, View<Scalar> const& kv, int rank, Visit visit) {
  HeadShape const shape = heads_of(qkv);
  bool const apart = kv.data != qkv.data;
  std::int64_t const members = apart ? 2 : shape.queries + 2; // of a group in a row of kv
  int const shards = op.context_shards;
  int const key_rank = (rank - std::max(op.hop, 0) + shards) % shards;
  std::int64_t const sequences = qkv.rows() * (shard_of(qkv, 0) < 0 ? 1 : shards) / op.sequence_length;
  for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
    SequenceRows const queries = rows_of(op, qkv.rows(), sequence, shard_of(qkv, rank));
    SequenceRows const keys = rows_of(op, kv.rows(), sequence, shard_of(kv, key_rank));
    for (std::int64_t group = 0; group < shape.groups; ++group)
      for (std::int64_t query = 0; query < shape.queries; ++query)
        visit(SharedHead{shape.row(), shape.at(group, query), shape.groups * members * shape.size,
                         (group * members + members - 2) * shape.size, (group * members + members - 1) * shape.size,
                         shape.size, shape.heads(), group * shape.queries + query},
              queries, keys);
  }
}

// Scaled scores; minus infinity where the key comes after the query.
template <class Scalar>
Matrix<Scalar> masked_scores(Matrix<Scalar> const& q, Matrix<Scalar> const& k, Scalar scale,
                             SequenceRows const& queries, SequenceRows const& keys) {
  Matrix<Scalar> scores = scale * (q * k.transpose());
  for (std::int64_t i = 0; i < scores.rows(); ++i)
    for (std::int64_t j = 0; j < scores.cols(); ++j)
      if (keys.position[static_cast<std::size_t>(j)] > queries.position[static_cast<std::size_t>(i)])
        scores(i, j) = -std::numeric_limits<Scalar>::infinity();
  return scores;
}

// qkv, [kv] -> o, lse
template <class Scalar>
void shared_attention_forward(Op const& op, Views<Scalar> reads, Views<Scalar> writes, KernelContext const& context) {
  View<Scalar> const& qkv = reads[0];
  View<Scalar> const& kv = reads.size() > 1 ? reads[1] : qkv;
  flat(writes[0]).setZero();
  auto const visit = [&](SharedHead const& head, SequenceRows const& queries, SequenceRows const& keys) {
    Matrix<Scalar> p = masked_scores<Scalar>(at_rows(qkv.data, head.q_stride, head.q, head.size, queries),
                                             at_rows(kv.data, head.kv_stride, head.k, head.size, keys),
                                             attention_scale(qkv), queries, keys);
    for (std::int64_t i = 0; i < p.rows(); ++i) {
      Scalar const maximum = p.row(i).template maxCoeff<Eigen::PropagateNaN>();
      Scalar& lse = writes[1].data[queries.row[static_cast<std::size_t>(i)] * head.heads + head.index];
      lse = maximum;
      if (maximum == -std::numeric_limits<Scalar>::infinity()) { // it sees no key
        p.row(i).setZero();
        continue;
      }
      p.row(i) = (p.row(i).array() - maximum).exp().matrix();
      Scalar const sum = p.row(i).sum();
      p.row(i) /= sum;
      lse = maximum + std::log(sum);
    }
    Matrix<Scalar> const o = p * at_rows(kv.data, head.kv_stride, head.v, head.size, keys);
    add_at_rows(o, writes[0].data, head.heads * head.size, head.index * head.size, queries);
  };
  for_each_shared_head(op, qkv, kv, context.coordinate.cp, visit);
}

// qkv, o, lse, do, [kv], [rw dqkv] -> dqkv, [dkv]
template <class Scalar>
void shared_attention_backward(Op const& op, Views<Scalar> reads, Views<Scalar> writes, KernelContext const& context) {
  bool const apart = reads.size() > 4;
  View<Scalar> const& qkv = reads[0];
  View<Scalar> const& kv = apart ? reads[4] : qkv;
  View<Scalar> const& dqkv = writes[0];
  View<Scalar> const& dkv = apart ? writes[1] : dqkv;
  if (reads.size() < 6)
    flat(dqkv).setZero();
  if (apart)
    flat(dkv).setZero();
  Scalar const scale = attention_scale(qkv);
  auto const visit = [&](SharedHead const& head, SequenceRows const& queries, SequenceRows const& keys) {
    std::int64_t const o_stride = head.heads * head.size, o_first = head.index * head.size;
    Matrix<Scalar> const q = at_rows(qkv.data, head.q_stride, head.q, head.size, queries);
    Matrix<Scalar> const k = at_rows(kv.data, head.kv_stride, head.k, head.size, keys);
    Matrix<Scalar> const v = at_rows(kv.data, head.kv_stride, head.v, head.size, keys);
    Matrix<Scalar> const o = at_rows(reads[1].data, o_stride, o_first, head.size, queries);
    Matrix<Scalar> const gradient = at_rows(reads[3].data, o_stride, o_first, head.size, queries);
    Matrix<Scalar> p = masked_scores<Scalar>(q, k, scale, queries, keys);
    Matrix<Scalar> dscores = gradient * v.transpose();
    for (std::int64_t i = 0; i < p.rows(); ++i) { // p . dp summed over all keys equals o . do
      Scalar const lse = reads[2].data[queries.row[static_cast<std::size_t>(i)] * head.heads + head.index];
      p.row(i) = (p.row(i).array() - lse).exp().matrix();
      dscores.row(i) = (p.row(i).array() * (dscores.row(i).array() - o.row(i).dot(gradient.row(i))) * scale).matrix();
    }
    add_at_rows<Scalar>(p.transpose() * gradient, dkv.data, head.kv_stride, head.v, keys);
    add_at_rows<Scalar>(dscores.transpose() * q, dkv.data, head.kv_stride, head.k, keys);
    add_at_rows<Scalar>(dscores * k, dqkv.data, head.q_stride, head.q, queries);
  };
  for_each_shared_head(op, qkv, kv, context.coordinate.cp, visit);
}

// Key and value parts of qkv [T, g, q + 2, d] to or from kv [T, g, 2, d].
template <class Scalar, class Copy>
void for_keys_values(View<Scalar> const& qkv, View<Scalar> const& kv, Copy copy) {
  HeadShape const shape = heads_of(qkv);
  std::int64_t const size = 2 * shape.size;
  for (std::int64_t i = 0; i < shape.tokens * shape.groups; ++i) // a token's group
    copy(ArrayMap<Scalar>(qkv.data + i * (shape.queries + 2) * shape.size + shape.queries * shape.size, size),
         ArrayMap<Scalar>(kv.data + i * size, size));
}

template <class Scalar>
void take_keys_values(Views<Scalar> reads, Views<Scalar> writes) {
  for_keys_values(reads[0], writes[0], [](auto from, auto to) { to = from; });
}

template <class Scalar>
void put_keys_values(Views<Scalar> reads, Views<Scalar> writes) {
  for_keys_values(writes[0], reads[0], [](auto to, auto from) { to = from; });
}

// rw o, rw lse, o of more keys, lse -> o, lse
template <class Scalar>
void attention_merge(Views<Scalar> reads, Views<Scalar> writes) {
  std::int64_t const size = writes[0].elements() / writes[1].elements();
  for (std::int64_t i = 0; i < writes[1].elements(); ++i) { // a token's head
    Scalar const a = reads[1].data[i], b = reads[3].data[i];
    Scalar const most = a > b || std::isnan(a) ? a : b; // one of them is finite
    Scalar const lse = most + std::log(std::exp(a - most) + std::exp(b - most));
    ArrayMap<Scalar>(writes[0].data + i * size,
                     size) = ArrayMap<Scalar>(reads[0].data + i * size, size) * std::exp(a - lse) +
                             ArrayMap<Scalar>(reads[2].data + i * size, size) * std::exp(b - lse);
    writes[1].data[i] = lse;
  }
}

// Rows of x in n parts each; block j of y has the j-th parts of all rows.
template <class Scalar, class Copy>
void for_each_part(Op const& op, View<Scalar> const& by_row, View<Scalar> const& by_block, Copy copy) {
  std::int64_t const parts = op.context_shards, width = by_row.columns() / parts;
  for (std::int64_t t = 0; t < by_row.rows(); ++t)
    for (std::int64_t j = 0; j < parts; ++j)
      copy(ArrayMap<Scalar>(by_row.data + (t * parts + j) * width, width),
           ArrayMap<Scalar>(by_block.data + (j * by_row.rows() + t) * width, width));
}

// The same of [T, g, q + 2, d] where n / g ranks share a KV head: each part has n / g-th of its queries, and its key and value.
template <class Scalar, class Copy>
void for_each_shared_part(Op const& op, View<Scalar> const& by_row, View<Scalar> const& by_block, Copy copy) {
  std::vector<std::int64_t> const& shape = by_row.tensor->shape;
  std::int64_t const parts = op.context_shards, groups = shape[1], sharers = parts / groups, size = shape[3];
  std::int64_t const queries = (shape[2] - 2) / sharers * size, width = queries + 2 * size;
  for (std::int64_t t = 0; t < shape[0]; ++t)
    for (std::int64_t j = 0; j < parts; ++j) {
      Scalar* const group = by_row.data + (t * groups + j / sharers) * shape[2] * size;
      Scalar* const block = by_block.data + (j * shape[0] + t) * width;
      copy(ArrayMap<Scalar>(group + j % sharers * queries, queries), ArrayMap<Scalar>(block, queries), true);
      copy(ArrayMap<Scalar>(group + (shape[2] - 2) * size, 2 * size), ArrayMap<Scalar>(block + queries, 2 * size),
           j % sharers == 0);
    }
}

template <class Scalar>
void pack_heads(Op const& op, Views<Scalar> reads, Views<Scalar> writes) {
  if (writes[0].elements() != reads[0].elements())
    return for_each_shared_part(op, reads[0], writes[0], [](auto from, auto to, bool) { to = from; });
  for_each_part(op, reads[0], writes[0], [](auto from, auto to) { to = from; });
}

template <class Scalar>
void unpack_heads(Op const& op, Views<Scalar> reads, Views<Scalar> writes) {
  if (writes[0].elements() != reads[0].elements())
    return for_each_shared_part(op, writes[0], reads[0], [](auto to, auto from, bool is_first) {
      if (is_first)
        to = from;
      else
        to += from;
    });
  for_each_part(op, writes[0], reads[0], [](auto to, auto from) { to = from; });
}

// ------------------------------------------------------------------------------------------------ attention on one rank

template <class Scalar>
void attention_forward(Op const& op, Views<Scalar> reads, Views<Scalar> writes, KernelContext const& context) {
  if (op.context_shards > 1)
    return shared_attention_forward(op, reads, writes, context);
  View<Scalar> const& qkv = reads[0];
  std::int64_t const s = op.sequence_length;
  Matrix<Scalar> scores(s, s);
  for_each_head(op, qkv, [&](Head<Scalar> const& head) {
    std::int64_t const heads = head.shape.heads();
    scores.noalias() = head.q(qkv) * head.k(qkv).transpose();
    causal_softmax(scores, attention_scale(qkv), writes[1].data + head.sequence * s * heads + head.index(), heads);
    head.in_context(writes[0]).noalias() = scores * head.v(qkv);
  });
}

template <class Scalar>
void attention_backward(Op const& op, Views<Scalar> reads, Views<Scalar> writes, KernelContext const& context) {
  if (op.context_shards > 1)
    return shared_attention_backward(op, reads, writes, context);
  View<Scalar> const& qkv = reads[0];
  View<Scalar> const& dqkv = writes[0];
  std::int64_t const s = op.sequence_length;
  Scalar const scale = attention_scale(qkv);
  Matrix<Scalar> p(s, s);
  Matrix<Scalar> dscores(s, s);
  flat(dqkv).setZero();
  for_each_head(op, qkv, [&](Head<Scalar> const& head) {
    std::int64_t const heads = head.shape.heads();
    Scalar const* lse = reads[2].data + head.sequence * s * heads + head.index();
    auto const o = head.in_context(reads[1]);
    auto const gradient = head.in_context(reads[3]);
    p.noalias() = head.q(qkv) * head.k(qkv).transpose();
    dscores.noalias() = gradient * head.v(qkv).transpose();
    for (std::int64_t i = 0; i < s; ++i) { // p . dp summed over keys equals o . do
      p.row(i) = (p.row(i).array() * scale - lse[i * heads]).exp().matrix();
      p.row(i).tail(s - i - 1).setZero();
      dscores.row(i) = (p.row(i).array() * (dscores.row(i).array() - o.row(i).dot(gradient.row(i))) * scale).matrix();
    }
    head.v(dqkv).noalias() += p.transpose() * gradient;
    head.q(dqkv).noalias() += dscores * head.k(qkv);
    head.k(dqkv).noalias() += dscores.transpose() * head.q(qkv);
  });
}

template <class Scalar>
void attention_scores(Op const& op, Views<Scalar> reads, Views<Scalar> writes) {
  for_each_head(op, reads[0], [&](Head<Scalar> const& head) {
    head.in_scores(writes[0]).noalias() = head.q(reads[0]) * head.k(reads[0]).transpose();
  });
}

template <class Scalar>
void attention_softmax(Op const& op, Views<Scalar> reads, Views<Scalar> writes) {
  std::int64_t const s = reads[0].tensor->shape.back();
  flat(writes[0]) = flat(reads[0]);
  for (std::int64_t first = 0; first < writes[0].elements(); first += s * s)
    causal_softmax(matrix(writes[0].data + first, s, s, s), static_cast<Scalar>(op.scale),
                   static_cast<Scalar*>(nullptr), 0);
}

template <class Scalar>
void attention_context(Op const& op, Views<Scalar> reads, Views<Scalar> writes) {
  for_each_head(op, reads[1], [&](Head<Scalar> const& head) {
    head.in_context(writes[0]).noalias() = head.in_scores(reads[0]) * head.v(reads[1]);
  });
}

template <class Scalar>
void attention_context_backward(Op const& op, Views<Scalar> reads, Views<Scalar> writes) {
  View<Scalar> const& qkv = reads[1];
  View<Scalar> const& dqkv = writes[1];
  flat(dqkv).setZero();
  for_each_head(op, qkv, [&](Head<Scalar> const& head) {
    auto const gradient = head.in_context(reads[2]);
    head.in_scores(writes[0]).noalias() = gradient * head.v(qkv).transpose();
    head.v(dqkv).noalias() += head.in_scores(reads[0]).transpose() * gradient;
  });
}

template <class Scalar>
void attention_softmax_backward(Op const& op, Views<Scalar> reads, Views<Scalar> writes) {
  std::int64_t const s = reads[0].tensor->shape.back();
  for (std::int64_t first = 0; first < writes[0].elements(); first += s * s)
    softmax_gradient(matrix(reads[0].data + first, s, s, s), matrix(reads[1].data + first, s, s, s),
                     matrix(writes[0].data + first, s, s, s), static_cast<Scalar>(op.scale));
}

template <class Scalar>
void attention_scores_backward(Op const& op, Views<Scalar> reads, Views<Scalar> writes) {
  View<Scalar> const& qkv = reads[0];
  for_each_head(op, qkv, [&](Head<Scalar> const& head) {
    auto const dscores = head.in_scores(reads[1]);
    head.q(writes[0]).noalias() += dscores * head.k(qkv);
    head.k(writes[0]).noalias() += dscores.transpose() * head.q(qkv);
  });
}

// ------------------------------------------------------------------------------------------------------- element-wise

template <class Scalar>
void gelu_forward(Views<Scalar> reads, Views<Scalar> writes) {
  flat(writes[0]) = flat(reads[0]).unaryExpr(
      [](Scalar x) { return x / 2 * (1 + std::erf(x * static_cast<Scalar>(M_SQRT1_2))); });
}

// d/dx = (1 + erf(x / sqrt 2)) / 2 + x exp(-x^2 / 2) / sqrt(2 pi)
template <class Scalar>
void gelu_backward(Views<Scalar> reads, Views<Scalar> writes) {
  flat(writes[0]) = flat(reads[0]).binaryExpr(flat(reads[1]), [](Scalar x, Scalar dy) {
    auto const density = static_cast<Scalar>(M_2_SQRTPI * M_SQRT1_2 / 2) * std::exp(-x * x / 2);
    return dy * ((1 + std::erf(x * static_cast<Scalar>(M_SQRT1_2))) / 2 + x * density);
  });
}

template <class Scalar>
Scalar sigmoid(Scalar x) {
  return 1 / (1 + std::exp(-x));
}

template <class Scalar>
void swiglu_forward(Views<Scalar> reads, Views<Scalar> writes) {
  std::int64_t const width = writes[0].columns();
  for (std::int64_t t = 0; t < writes[0].rows(); ++t) {
    Scalar const* gate = reads[0].data + 2 * t * width;
    Scalar const* up = gate + width;
    for (std::int64_t i = 0; i < width; ++i)
      writes[0].data[t * width + i] = gate[i] * sigmoid(gate[i]) * up[i];
  }
}

// silu'(x) = sigmoid(x) (1 + x (1 - sigmoid(x)))
template <class Scalar>
void swiglu_backward(Views<Scalar> reads, Views<Scalar> writes) {
  std::int64_t const width = reads[1].columns();
  for (std::int64_t t = 0; t < reads[1].rows(); ++t)
    for (std::int64_t i = 0; i < width; ++i) {
      std::int64_t const at_gate = 2 * t * width + i;
      Scalar const gate = reads[0].data[at_gate];
      Scalar const up = reads[0].data[at_gate + width];
      Scalar const dy = reads[1].data[t * width + i];
      Scalar const s = sigmoid(gate);
      writes[0].data[at_gate] = dy * up * s * (1 + gate * (1 - s));
      writes[0].data[at_gate + width] = dy * gate * s;
    }
}

// Dropout of rate 0 keeps everything; the mask is all ones.
template <class Scalar>
void bias_add(Views<Scalar> reads, Views<Scalar> writes) {
  auto y = by_token(writes[0]);
  y.array() = by_token(reads[0]).array().rowwise() + flat(reads[1]).transpose();
  y += by_token(reads[2]);
  if (writes.size() > 1)
    flat(writes[1]).setOnes();
}

template <class Scalar>
void bias_gradient(Views<Scalar> reads, Views<Scalar> writes) {
  flat(writes[0]) += by_token(reads[0]).colwise().sum().transpose().array();
}

// --------------------------------------------------------------------------------------------------------------- step

// gradient, sum, rw master, rw m, rw v -> master, m, v, parameter
template <class Scalar>
void adam(Op const& op, Views<Scalar> reads, Views<Scalar> writes, KernelContext const& context) {
  require_equal_sizes(op, writes);
  if (reads[0].elements() != writes[0].elements())
    refuse(op, "operands of different sizes");
  TrainingParameters const& training = context.training;
  double const norm = std::sqrt(static_cast<double>(reads[1].data[0]));
  double const factor = context.gradient_clip > 0 ? context.gradient_clip / (norm + 1e-6) : 1;
  auto const clip = static_cast<Scalar>(factor > 1 ? 1 : factor); // a NaN norm stays NaN
  auto const beta1 = static_cast<Scalar>(training.beta1);
  auto const beta2 = static_cast<Scalar>(training.beta2);
  auto const correction1 = static_cast<Scalar>(1 - std::pow(training.beta1, context.step));
  auto const correction2 = static_cast<Scalar>(1 - std::pow(training.beta2, context.step));
  auto const rate = static_cast<Scalar>(training.learning_rate);
  auto const epsilon = static_cast<Scalar>(training.epsilon);
  for (std::int64_t i = 0; i < writes[0].elements(); ++i) {
    Scalar const g = reads[0].data[i] * clip;
    Scalar const m = beta1 * reads[3].data[i] + (1 - beta1) * g;
    Scalar const v = beta2 * reads[4].data[i] + (1 - beta2) * g * g;
    Scalar const master = reads[2].data[i] - rate * (m / correction1) / (std::sqrt(v / correction2) + epsilon);
    writes[0].data[i] = master;
    writes[1].data[i] = m;
    writes[2].data[i] = v;
    writes[3].data[i] = master;
  }
}

// Sum (or maximum) over the members of what each reads, into scratch.
template <class Scalar>
ArrayMap<Scalar> reduce(Op const& op, Views<Scalar> reads, std::vector<Scalar>& scratch) {
  require_equal_sizes(op, reads);
  scratch.assign(reads[0].data, reads[0].data + reads[0].elements());
  ArrayMap<Scalar> total(scratch.data(), reads[0].elements());
  bool const maximum = takes_maximum(op, *reads[0].tensor);
  for (View<Scalar> const& read : reads.subspan(1))
    if (maximum)
      total = total.binaryExpr(flat(read), [](Scalar a, Scalar b) { return a > b || std::isnan(a) ? a : b; });
    else
      total += flat(read);
  return total;
}

template <class Scalar>
ArrayMap<Scalar> concatenate(Op const& op, Views<Scalar> reads, std::vector<Scalar>& scratch) {
  require_equal_sizes(op, reads);
  scratch.clear();
  for (View<Scalar> const& read : reads)
    scratch.insert(scratch.end(), read.data, read.data + read.elements());
  return {scratch.data(), static_cast<std::int64_t>(scratch.size())};
}

} // namespace

bool takes_maximum(Op const& op, Tensor const& tensor) {
  for (Axis axis : all_axes)
    if (op.group.axes.contains(axis) && tensor.placement[axis].kind == AxisPlacement::Kind::partial_max)
      return true;
  return false;
}

template <class Scalar>
void run_kernel(Op const& op, Views<Scalar> reads, Views<Scalar> writes, KernelContext const& context) {
  switch (op.kind) {
    case OpKind::embedding_forward: return embedding_forward(reads, writes, context);
    case OpKind::embedding_backward: return embedding_backward(reads, writes, context);
    case OpKind::add_positions: return add_positions(op, reads, writes, context);
    case OpKind::position_gradient: return position_gradient(op, reads, writes, context);
    case OpKind::loss_maximum: return loss_maximum(reads, writes);
    case OpKind::loss_sums: return loss_sums(reads, writes, context);
    case OpKind::loss_forward: return loss_forward(op, reads, writes);
    case OpKind::loss_backward: return loss_backward(op, reads, writes, context);
    case OpKind::norm_forward: return norm_forward(reads, writes);
    case OpKind::norm_backward: return norm_backward(reads, writes);
    case OpKind::linear_forward: return linear_forward(op, reads, writes);
    case OpKind::linear_input_gradient: return linear_input_gradient(op, reads, writes);
    case OpKind::linear_weight_gradient: return linear_weight_gradient(op, reads, writes);
    case OpKind::rope_forward: return rope(op, reads, writes, context, 1);
    case OpKind::rope_backward: return rope(op, reads, writes, context, -1);
    case OpKind::attention_forward: return attention_forward(op, reads, writes, context);
    case OpKind::attention_backward: return attention_backward(op, reads, writes, context);
    case OpKind::attention_scores: return attention_scores(op, reads, writes);
    case OpKind::attention_softmax: return attention_softmax(op, reads, writes);
    case OpKind::attention_context: return attention_context(op, reads, writes);
    case OpKind::attention_context_backward: return attention_context_backward(op, reads, writes);
    case OpKind::attention_softmax_backward: return attention_softmax_backward(op, reads, writes);
    case OpKind::attention_scores_backward: return attention_scores_backward(op, reads, writes);
    case OpKind::take_keys_values: return take_keys_values(reads, writes);
    case OpKind::put_keys_values: return put_keys_values(reads, writes);
    case OpKind::attention_merge: return attention_merge(reads, writes);
    case OpKind::pack_heads: return pack_heads(op, reads, writes);
    case OpKind::unpack_heads: return unpack_heads(op, reads, writes);
    case OpKind::gelu_forward: return gelu_forward(reads, writes);
    case OpKind::gelu_backward: return gelu_backward(reads, writes);
    case OpKind::swiglu_forward: return swiglu_forward(reads, writes);
    case OpKind::swiglu_backward: return swiglu_backward(reads, writes);
    case OpKind::accumulate:
    case OpKind::add: flat(writes[0]) = flat(reads[0]) + flat(reads[1]); return;
    case OpKind::bias_add: return bias_add(reads, writes);
    case OpKind::bias_gradient: return bias_gradient(reads, writes);
    case OpKind::dropout_forward:
      flat(writes[0]) = flat(reads[0]);
      flat(writes[1]).setOnes();
      return;
    case OpKind::dropout_backward: flat(writes[0]) = flat(reads[0]) * flat(reads[1]); return;
    case OpKind::dropout_mask: flat(writes[0]).setOnes(); return;
    case OpKind::zero_fill: flat(writes[0]).setZero(); return;
    case OpKind::cast:
    case OpKind::copy: flat(writes[0]) = flat(reads[0]); return;
    case OpKind::quantize: return quantize<Scalar>(op, reads[0], writes[0], writes[1]);
    case OpKind::dequantize: return dequantize<Scalar>(op, reads[0], reads[1], writes[0]);
    case OpKind::requantize: return requantize<Scalar>(op, reads, writes);
    case OpKind::norm_squared:
      writes[0].data[0] += static_cast<Scalar>(op.scale) * flat(reads[0]).square().sum();
      return;
    case OpKind::adam: return adam(op, reads, writes, context);
    case OpKind::all_reduce:
    case OpKind::all_gather:
    case OpKind::reduce_scatter:
    case OpKind::all_to_all:
    case OpKind::ring_shift:
    case OpKind::send:
    case OpKind::receive: refuse(op, "communication is no kernel");
    case OpKind::wait: return;
  }
}

namespace {

// Block j of every member's x goes to member j.
template <class Scalar>
void all_to_all(Op const& op, Views<Scalar> reads, Views<Scalar> writes, std::vector<Scalar>& scratch) {
  ArrayMap<Scalar> const all = concatenate(op, reads, scratch);
  auto const members = static_cast<std::int64_t>(reads.size());
  std::int64_t const size = reads[0].elements(), block = size / members;
  if (block * members != size)
    refuse(op, "the group's sizes do not fit");
  for (std::int64_t to = 0; to < members; ++to)
    for (std::int64_t from = 0; from < members; ++from)
      flat(writes[static_cast<std::size_t>(to)]).segment(from * block, block) = all.segment(from * size + to * block,
                                                                                            block);
}

template <class Scalar>
void ring_shift(Op const& op, Views<Scalar> reads, Views<Scalar> writes, std::vector<Scalar>& scratch) {
  ArrayMap<Scalar> const all = concatenate(op, reads, scratch);
  auto const members = static_cast<std::int64_t>(reads.size());
  std::int64_t const size = reads[0].elements();
  for (std::int64_t to = 0; to < members; ++to)
    flat(writes[static_cast<std::size_t>(to)]) = all.segment((to + members - 1) % members * size, size);
}

} // namespace

template <class Scalar>
void run_collective(Op const& op, Views<Scalar> reads, Views<Scalar> writes, std::vector<Scalar>& scratch) {
  if (op.kind == OpKind::all_to_all || op.kind == OpKind::ring_shift) {
    for (std::size_t i = 0; i < writes.size(); ++i)
      if (writes[i].elements() != reads[i].elements())
        refuse(op, "operands of different sizes");
    return op.kind == OpKind::all_to_all ? all_to_all(op, reads, writes, scratch)
                                         : ring_shift(op, reads, writes, scratch);
  }
  ArrayMap<Scalar> const result = op.kind == OpKind::all_gather ? concatenate(op, reads, scratch)
                                                                : reduce(op, reads, scratch);
  bool const scattered = op.kind == OpKind::reduce_scatter;
  std::int64_t const part = scattered ? result.size() / static_cast<std::int64_t>(writes.size()) : result.size();
  for (std::size_t member = 0; member < writes.size(); ++member) {
    std::int64_t const first = scattered ? part * static_cast<std::int64_t>(member) : 0;
    if (writes[member].elements() != part ||
        (scattered && part * static_cast<std::int64_t>(writes.size()) != result.size()))
      refuse(op, "the group's sizes do not fit");
    flat(writes[member]) = result.segment(first, part);
  }
}

template void run_kernel<float>(Op const&, Views<float>, Views<float>, KernelContext const&);
template void run_kernel<double>(Op const&, Views<double>, Views<double>, KernelContext const&);
template void run_collective<float>(Op const&, Views<float>, Views<float>, std::vector<float>&);
template void run_collective<double>(Op const&, Views<double>, Views<double>, std::vector<double>&);

} // namespace foreplan

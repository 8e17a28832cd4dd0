#include "interpreter/kernels.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
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
  std::int64_t const first = first_of_shard(reads[0], 0, context.coordinate);
  for (std::int64_t t = 0; t < x.rows(); ++t)
    y.row(t) = x.row(t) + table.row((first + t) % op.sequence_length);
}

template <class Scalar>
void position_gradient(Op const& op, Views<Scalar> reads, Views<Scalar> writes, KernelContext const& context) {
  auto const dy = by_token(reads[0]);
  auto dtable = by_token(writes[0]);
  std::int64_t const first = first_of_shard(reads[0], 0, context.coordinate);
  for (std::int64_t t = 0; t < dy.rows(); ++t)
    dtable.row((first + t) % op.sequence_length) += dy.row(t);
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
  std::int64_t const first = first_of_shard(reads[0], 0, context.coordinate);
  if (writes[0].data != reads[0].data)
    flat(writes[0]) = flat(reads[0]);
  for (std::int64_t t = 0; t < shape.tokens; ++t)
    for (std::int64_t group = 0; group < shape.groups; ++group)
      for (std::int64_t member = 0; member <= shape.queries; ++member) // the queries and, last, the key
        rotate(writes[0].data + t * shape.row() + shape.at(group, member), shape.size, (first + t) % op.sequence_length,
               direction);
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

template <class Scalar>
void attention_forward(Op const& op, Views<Scalar> reads, Views<Scalar> writes) {
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
void attention_backward(Op const& op, Views<Scalar> reads, Views<Scalar> writes) {
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

template <class Scalar>
bool takes_maximum(Op const& op, View<Scalar> const& view) {
  for (Axis axis : {Axis::tp, Axis::dp, Axis::pp})
    if (op.group.axes.contains(axis) && view.tensor->placement[axis].kind == AxisPlacement::Kind::partial_max)
      return true;
  return false;
}

// Sum (or maximum) over the members of what each reads, into scratch.
template <class Scalar>
ArrayMap<Scalar> reduce(Op const& op, Views<Scalar> reads, std::vector<Scalar>& scratch) {
  require_equal_sizes(op, reads);
  scratch.assign(reads[0].data, reads[0].data + reads[0].elements());
  ArrayMap<Scalar> total(scratch.data(), reads[0].elements());
  bool const maximum = takes_maximum(op, reads[0]);
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
    case OpKind::attention_forward: return attention_forward(op, reads, writes);
    case OpKind::attention_backward: return attention_backward(op, reads, writes);
    case OpKind::attention_scores: return attention_scores(op, reads, writes);
    case OpKind::attention_softmax: return attention_softmax(op, reads, writes);
    case OpKind::attention_context: return attention_context(op, reads, writes);
    case OpKind::attention_context_backward: return attention_context_backward(op, reads, writes);
    case OpKind::attention_softmax_backward: return attention_softmax_backward(op, reads, writes);
    case OpKind::attention_scores_backward: return attention_scores_backward(op, reads, writes);
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
    case OpKind::cast: flat(writes[0]) = flat(reads[0]); return;
    case OpKind::norm_squared:
      writes[0].data[0] += static_cast<Scalar>(op.scale) * flat(reads[0]).square().sum();
      return;
    case OpKind::adam: return adam(op, reads, writes, context);
    case OpKind::all_reduce:
    case OpKind::all_gather:
    case OpKind::reduce_scatter:
    case OpKind::send:
    case OpKind::receive: refuse(op, "communication is no kernel");
    case OpKind::wait: return;
  }
}

template <class Scalar>
void run_collective(Op const& op, Views<Scalar> reads, Views<Scalar> writes, std::vector<Scalar>& scratch) {
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

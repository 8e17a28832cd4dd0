// Each op kind alone: by hand where a hand can do it, backward ops against central differences of their forward op.
#include "interpreter/kernels.hpp"
#include "tests/catch.hpp"

#include <cmath>
#include <functional>
#include <random>

using namespace foreplan;

namespace {

// A tensor with its own storage.
struct Values {
  Tensor tensor;
  std::vector<double> data;
};

Values zeros(std::vector<std::int64_t> shape, Placement placement = {}) {
  Values values;
  values.tensor.shape = std::move(shape);
  values.tensor.placement = placement;
  values.data.assign(static_cast<std::size_t>(values.tensor.elements()), 0);
  return values;
}

Values of(std::vector<std::int64_t> shape, std::vector<double> data, Placement placement = {}) {
  Values values = zeros(std::move(shape), placement);
  values.data = std::move(data);
  return values;
}

Values random(std::vector<std::int64_t> shape, unsigned seed) {
  Values values = zeros(std::move(shape));
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (double& value : values.data)
    value = uniform(engine);
  return values;
}

Placement tp_shard(int dimension) {
  Placement placement;
  placement[Axis::tp] = sharded(dimension);
  return placement;
}

std::vector<View<double>> views(std::vector<Values*> const& operands) {
  std::vector<View<double>> result;
  for (Values* operand : operands)
    result.push_back({operand->data.data(), &operand->tensor});
  return result;
}

Op make_op(OpKind kind, std::int64_t sequence_length = 1) {
  Op op;
  op.kind = kind;
  op.sequence_length = sequence_length;
  return op;
}

void run(Op const& op, std::vector<Values*> const& reads, std::vector<Values*> const& writes,
         KernelContext const& context = {}) {
  run_kernel<double>(op, views(reads), views(writes), context);
}

KernelContext at_tp(int tp_index) {
  KernelContext context;
  context.coordinate.tp = tp_index;
  return context;
}

double dot(Values const& a, Values const& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.data.size(); ++i)
    sum += a.data[i] * b.data[i];
  return sum;
}

void check_close(Values const& a, Values const& b, double tolerance = 1e-12) {
  REQUIRE(a.data.size() == b.data.size());
  for (std::size_t i = 0; i < a.data.size(); ++i)
    CHECK(std::abs(a.data[i] - b.data[i]) <= tolerance);
}

// `gradient` is d value / d x: central differences with a step of 1e-5 are good to about 1e-10 of values of order one.
void check_gradient(std::function<double()> const& value, Values& x, Values const& gradient) {
  double const step = 1e-5;
  REQUIRE(x.data.size() == gradient.data.size());
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    double const before = x.data[i];
    x.data[i] = before + step;
    double const above = value();
    x.data[i] = before - step;
    double const below = value();
    x.data[i] = before;
    CHECK(std::abs((above - below) / (2 * step) - gradient.data[i]) < 1e-8);
  }
}

} // namespace

TEST_CASE("linear: y = x W + b and its gradients, in both layouts of the weight") {
  bool const transposed = GENERATE(false, true);
  Values x = random({3, 4}, 1);
  Values weight = transposed ? random({5, 4}, 2) : random({4, 5}, 2);
  Values bias = random({5}, 3);
  Values y = zeros({3, 5});
  Values const dy = random({3, 5}, 4);
  Op forward = make_op(OpKind::linear_forward);
  forward.transposed = transposed;
  auto value = [&] {
    run(forward, {&x, &weight, &bias}, {&y});
    return dot(y, dy);
  };
  value();
  double expected = bias.data[1]; // y[2, 1] = sum over k of x[2, k] W[k, 1] + b[1]
  for (std::size_t k = 0; k < 4; ++k)
    expected += x.data[8 + k] * (transposed ? weight.data[4 + k] : weight.data[k * 5 + 1]);
  CHECK(y.data[2 * 5 + 1] == Approx(expected));

  Values gradient = dy, dx = zeros({3, 4}), dweight = zeros(weight.tensor.shape), dbias = zeros({5});
  Op input = make_op(OpKind::linear_input_gradient), weights = make_op(OpKind::linear_weight_gradient);
  input.transposed = weights.transposed = transposed;
  run(input, {&gradient, &weight}, {&dx});
  run(weights, {&x, &gradient, &dweight, &dbias}, {&dweight, &dbias});
  check_gradient(value, x, dx);
  check_gradient(value, weight, dweight);
  check_gradient(value, bias, dbias);

  Values const once = dweight; // a second micro-batch adds the same again
  run(weights, {&x, &gradient, &dweight, &dbias}, {&dweight, &dbias});
  CHECK(dweight.data[3] == Approx(2 * once.data[3]));
}

TEST_CASE("norms: values by hand and gradients") {
  // x = (1, 3): mean 2, variance 1; mean of squares 5.
  Values x = of({1, 2}, {1, 3}), w = of({2}, {2, 2}), b = of({2}, {0.5, 0.5}), y = zeros({1, 2});
  run(make_op(OpKind::norm_forward), {&x, &w, &b}, {&y});
  CHECK(y.data[0] == Approx(0.5 - 2 / std::sqrt(1 + 1e-5)));
  run(make_op(OpKind::norm_forward), {&x, &w}, {&y});
  CHECK(y.data[1] == Approx(6 / std::sqrt(5 + 1e-5)));

  bool const layer_norm = GENERATE(false, true);
  bool const has_residual = GENERATE(false, true);
  x = random({3, 6}, 1), w = random({6}, 2), b = random({6}, 3), y = zeros({3, 6});
  Values dy = random({3, 6}, 4), dresidual = random({3, 6}, 5);
  auto value = [&] {
    run(make_op(OpKind::norm_forward), layer_norm ? std::vector{&x, &w, &b} : std::vector{&x, &w}, {&y});
    return dot(y, dy) + (has_residual ? dot(x, dresidual) : 0);
  };
  Values dx = zeros({3, 6}), dw = zeros({6}), db = zeros({6});
  std::vector<Values*> reads{&dy, &x, &w};
  if (has_residual)
    reads.push_back(&dresidual);
  reads.push_back(&dw);
  std::vector<Values*> writes{&dx, &dw};
  if (layer_norm) {
    reads.push_back(&db);
    writes.push_back(&db);
  }
  run(make_op(OpKind::norm_backward), reads, writes);
  check_gradient(value, x, dx);
  check_gradient(value, w, dw);
  if (layer_norm)
    check_gradient(value, b, db);
}

TEST_CASE("rope turns queries and key by position, leaves the value, and backward turns back") {
  // d = 2: one angle, theta = position. Group (q, k, v) = ((1, 0), (0, 1), (3, 4)); the second token has position 1.
  Values qkv = of({2, 1, 3, 2}, {1, 0, 0, 1, 3, 4, 1, 0, 0, 1, 3, 4});
  Values const before = qkv;
  run(make_op(OpKind::rope_forward, 2), {&qkv}, {&qkv});
  check_close(qkv, of({2, 1, 3, 2}, {1, 0, 0, 1, 3, 4, std::cos(1), std::sin(1), -std::sin(1), std::cos(1), 3, 4}));
  run(make_op(OpKind::rope_backward, 2), {&qkv}, {&qkv});
  check_close(qkv, before);
}

TEST_CASE("attention: causal, fused and unfused agree, gradients") {
  std::int64_t const s = 3, sequences = 2, g = 2, q = 2, d = 4, heads = g * q, T = s * sequences;
  Values qkv = random({T, g, q + 2, d}, 1), o = zeros({T, g, q * d}), lse = zeros({T, heads});
  Values gradient = random({T, g, q * d}, 2), dqkv = zeros({T, g, q + 2, d});
  auto value = [&] {
    run(make_op(OpKind::attention_forward, s), {&qkv}, {&o, &lse});
    return dot(o, gradient);
  };
  value();
  // The first token sees itself alone: its output is its value, its lse the scaled score.
  double score = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(o.data[i] == Approx(qkv.data[12 + i])); // group 0, member 3 = value
    score += qkv.data[i] * qkv.data[8 + i] / 2;   // 1 / sqrt(4)
  }
  CHECK(lse.data[0] == Approx(score));
  run(make_op(OpKind::attention_backward, s), {&qkv, &o, &lse, &gradient}, {&dqkv});
  check_gradient(value, qkv, dqkv);
  value();

  Op softmax = make_op(OpKind::attention_softmax, s), softmax_backward = make_op(OpKind::attention_softmax_backward, s);
  softmax.scale = softmax_backward.scale = 0.5;
  std::vector<std::int64_t> const square{sequences, heads, s, s};
  Values scores = zeros(square), p = zeros(square), o2 = zeros({T, g, q * d});
  run(make_op(OpKind::attention_scores, s), {&qkv}, {&scores});
  run(softmax, {&scores}, {&p});
  run(make_op(OpKind::attention_context, s), {&p, &qkv}, {&o2});
  check_close(o, o2);
  Values dp = zeros(square), dscores = zeros(square), dqkv2 = random({T, g, q + 2, d}, 3);
  run(make_op(OpKind::attention_context_backward, s), {&p, &qkv, &gradient}, {&dp, &dqkv2});
  run(softmax_backward, {&p, &dp}, {&dscores});
  run(make_op(OpKind::attention_scores_backward, s), {&qkv, &dscores, &dqkv2}, {&dqkv2});
  check_close(dqkv, dqkv2);
}

TEST_CASE("activations") {
  Values one = of({1, 1}, {1}), y = zeros({1, 1});
  run(make_op(OpKind::gelu_forward), {&one}, {&y});
  CHECK(y.data[0] == Approx(0.841344746)); // the normal distribution's Phi(1)
  Values x = random({3, 4}, 1), dy = random({3, 4}, 2), dx = zeros({3, 4});
  y = zeros({3, 4});
  run(make_op(OpKind::gelu_backward), {&x, &dy}, {&dx});
  check_gradient(
      [&] {
        run(make_op(OpKind::gelu_forward), {&x}, {&y});
        return dot(y, dy);
      },
      x, dx);

  Values gate_up = of({1, 2, 1}, {1, 3});
  y = zeros({1, 1});
  run(make_op(OpKind::swiglu_forward), {&gate_up}, {&y});
  CHECK(y.data[0] == Approx(3 / (1 + std::exp(-1)))); // silu(1) * 3
  gate_up = random({3, 2, 4}, 3);
  y = zeros({3, 4});
  Values dgate_up = zeros({3, 2, 4});
  run(make_op(OpKind::swiglu_backward), {&gate_up, &dy}, {&dgate_up});
  check_gradient(
      [&] {
        run(make_op(OpKind::swiglu_forward), {&gate_up}, {&y});
        return dot(y, dy);
      },
      gate_up, dgate_up);
}

TEST_CASE("embedding: the shards of a table add up to the whole; the gradient goes to the row") {
  Values ids = of({3}, {3, 0, 2}), table = of({4, 2}, {0, 1, 2, 3, 4, 5, 6, 7}), y = zeros({3, 2});
  run(make_op(OpKind::embedding_forward), {&ids, &table}, {&y});
  CHECK(y.data == std::vector<double>{6, 7, 0, 1, 4, 5});
  Values lower = of({2, 2}, {4, 5, 6, 7}, tp_shard(0)); // rows 2 and 3 on tp index 1
  run(make_op(OpKind::embedding_forward), {&ids, &lower}, {&y}, at_tp(1));
  CHECK(y.data == std::vector<double>{6, 7, 0, 0, 4, 5});
  Values dtable = zeros({2, 2}, tp_shard(0)), dy = of({3, 2}, {1, 2, 3, 4, 5, 6});
  run(make_op(OpKind::embedding_backward), {&ids, &dy, &dtable}, {&dtable}, at_tp(1));
  CHECK(dtable.data == std::vector<double>{5, 6, 1, 2}); // row 2 from token 2, row 3 from token 0
}

TEST_CASE("positions count from the first token of a rank, modulo the sequence") {
  // s = 2; tp index 1 of tokens cut into threes: rows are tokens 3, 4, 5, positions 1, 0, 1.
  Values x = of({3, 1}, {0, 0, 0}, tp_shard(0)), table = of({2, 1}, {10, 20}), y = zeros({3, 1});
  run(make_op(OpKind::add_positions, 2), {&x, &table}, {&y}, at_tp(1));
  CHECK(y.data == std::vector<double>{20, 10, 20});
  Values dy = of({3, 1}, {1, 2, 4}, tp_shard(0)), dtable = of({2, 1}, {100, 100});
  run(make_op(OpKind::position_gradient, 2), {&dy, &dtable}, {&dtable}, at_tp(1));
  CHECK(dtable.data == std::vector<double>{102, 105});
}

TEST_CASE("cross-entropy: whole, in two vocabulary shards, and its gradient") {
  Values logits = random({2, 4}, 1), labels = of({2}, {1, 3}), maximum = zeros({2}), sums = zeros({2, 2});
  Values loss = zeros({1});
  Op forward = make_op(OpKind::loss_forward), backward = make_op(OpKind::loss_backward);
  forward.scale = backward.scale = 0.5;
  auto value = [&] {
    loss.data[0] = 0;
    run(make_op(OpKind::loss_maximum), {&logits}, {&maximum});
    run(make_op(OpKind::loss_sums), {&logits, &labels, &maximum}, {&sums});
    run(forward, {&sums, &loss}, {&loss});
    return loss.data[0];
  };
  // 1/2 of the sum over tokens of (log of the sum of exponentials - the label's logit)
  double expected = 0;
  for (std::size_t t = 0; t < 2; ++t) {
    double sum = 0;
    for (std::size_t c = 0; c < 4; ++c)
      sum += std::exp(logits.data[4 * t + c]);
    expected += 0.5 * (std::log(sum) - logits.data[4 * t + (t == 0 ? 1 : 3)]);
  }
  CHECK(value() == Approx(expected));

  // tp index 1 holds columns 2 and 3: with the global maximum its sums and those of index 0 add up.
  Values right = of({2, 2}, {logits.data[2], logits.data[3], logits.data[6], logits.data[7]}, tp_shard(1));
  Values left = of({2, 2}, {logits.data[0], logits.data[1], logits.data[4], logits.data[5]}, tp_shard(1));
  Values left_sums = zeros({2, 2}), right_sums = zeros({2, 2});
  run(make_op(OpKind::loss_sums), {&left, &labels, &maximum}, {&left_sums}, at_tp(0));
  run(make_op(OpKind::loss_sums), {&right, &labels, &maximum}, {&right_sums}, at_tp(1));
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(left_sums.data[i] + right_sums.data[i] == Approx(sums.data[i]));

  Values gradient = logits; // in place
  run(backward, {&gradient, &labels, &maximum, &sums}, {&gradient});
  check_gradient(value, logits, gradient);
  value();
  run(backward, {&right, &labels, &maximum, &sums}, {&right}, at_tp(1));
  CHECK(right.data[1] == Approx(gradient.data[3]));
  CHECK(right.data[3] == Approx(gradient.data[7]));
}

TEST_CASE("element-wise ops") {
  Values x = of({2, 2}, {1, 2, 3, 4}), r = of({2, 2}, {10, 20, 30, 40}), b = of({2}, {0.5, 0.25});
  Values y = zeros({2, 2}), mask = zeros({2, 2}), db = of({2}, {100, 100}), sum = of({1}, {1});
  run(make_op(OpKind::add), {&x, &r}, {&y});
  CHECK(y.data == std::vector<double>{11, 22, 33, 44});
  run(make_op(OpKind::bias_add), {&x, &b, &r}, {&y, &mask});
  CHECK(y.data == std::vector<double>{11.5, 22.25, 33.5, 44.25});
  CHECK(mask.data == std::vector<double>{1, 1, 1, 1});
  run(make_op(OpKind::bias_gradient), {&x, &db}, {&db});
  CHECK(db.data == std::vector<double>{104, 106});
  run(make_op(OpKind::dropout_forward), {&x}, {&y, &mask});
  CHECK(y.data == x.data);
  mask.data[0] = 0;
  run(make_op(OpKind::dropout_backward), {&x, &mask}, {&y});
  CHECK(y.data == std::vector<double>{0, 2, 3, 4});
  run(make_op(OpKind::cast), {&x}, {&y});
  CHECK(y.data == x.data);
  Op squared = make_op(OpKind::norm_squared);
  squared.scale = 0.5;
  run(squared, {&x, &sum}, {&sum});
  CHECK(sum.data[0] == Approx(1 + 0.5 * (1 + 4 + 9 + 16)));
  run(make_op(OpKind::zero_fill), {}, {&y});
  CHECK(y.data == std::vector<double>{0, 0, 0, 0});
}

TEST_CASE("adam: the first step moves by the rate against the clipped gradient's sign") {
  // Norm 4, clip 1: g = 2 * 1/4 = 0.5. m = 0.1 g, v = 0.05 g^2; corrected g and g^2: master - rate * g / (g + eps).
  Values gradient = of({1}, {2}), sum = of({1}, {16}), master = of({1}, {1}), m = zeros({1}), v = zeros({1});
  Values parameter = zeros({1});
  KernelContext context;
  context.gradient_clip = 1;
  context.training = {.learning_rate = 0.1, .epsilon = 0.5};
  run(make_op(OpKind::adam), {&gradient, &sum, &master, &m, &v}, {&master, &m, &v, &parameter}, context);
  CHECK(master.data[0] == Approx(1 - 0.1 * 0.5 / (0.5 + 0.5)).epsilon(1e-6));
  CHECK(m.data[0] == Approx(0.05).epsilon(1e-6));
  CHECK(v.data[0] == Approx(0.05 * 0.25).epsilon(1e-6));
  CHECK(parameter.data == master.data);
  context.gradient_clip = 0; // never: g = 2
  context.step = 1;
  m.data[0] = v.data[0] = 0;
  run(make_op(OpKind::adam), {&gradient, &sum, &master, &m, &v}, {&master, &m, &v, &parameter}, context);
  CHECK(m.data[0] == Approx(0.2));
}

TEST_CASE("collectives") {
  Values a = of({2}, {1, 5}), b = of({2}, {3, 4}), wide_a = zeros({4}), wide_b = zeros({4});
  Values part_a = zeros({1}), part_b = zeros({1});
  std::vector<double> scratch;
  auto collective = [&](OpKind kind, std::vector<Values*> const& reads, std::vector<Values*> const& writes) {
    Op op = make_op(kind);
    op.group.axes = Axis::tp;
    run_collective<double>(op, views(reads), views(writes), scratch);
  };
  collective(OpKind::all_gather, {&a, &b}, {&wide_a, &wide_b});
  CHECK(wide_a.data == std::vector<double>{1, 5, 3, 4});
  CHECK(wide_b.data == wide_a.data);
  collective(OpKind::reduce_scatter, {&a, &b}, {&part_a, &part_b});
  CHECK(part_a.data == std::vector<double>{4});
  CHECK(part_b.data == std::vector<double>{9});
  CHECK_THROWS(collective(OpKind::all_gather, {&a, &b}, {&wide_a, &part_b}));
  collective(OpKind::all_reduce, {&a, &b}, {&a, &b});
  CHECK(a.data == std::vector<double>{4, 9});
  CHECK(b.data == a.data);
  Placement maximum;
  maximum[Axis::tp] = partial_max;
  Values c = of({2}, {1, 5}, maximum), d = of({2}, {3, 4}, maximum);
  collective(OpKind::all_reduce, {&c, &d}, {&c, &d});
  CHECK(c.data == std::vector<double>{3, 5});
}

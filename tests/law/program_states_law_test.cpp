// Model states (ZeRO, arXiv 1910.02054, figure 1; notes: algorithms.md 2.1) and what data parallelism moves, read off the
// programs' buffers and ops.
#include "model/model.hpp"
#include "program/compile.hpp"
#include "tests/catch.hpp"
#include "tests/law/program_counts.hpp"

#include <array>
#include <cmath>
#include <utility>

using namespace foreplan;

namespace {

constexpr int ranks = 64;

// About 7.5e9 parameters. Every width is a multiple of 64, so that buckets need no padding.
Model gpt_7b() {
  Model model;
  model.layers = 36;
  model.hidden = 4096;
  model.heads = model.kv_heads = 32;
  model.head_size = 128;
  model.ffn = 16384;
  model.vocabulary = 51200;
  model.max_positions = 2048;
  model.norm = NormKind::layer_norm;
  model.activation = Activation::gelu;
  model.positions = Positions::learned;
  model.biases = true;
  model.tied_embeddings = true;
  return model;
}

Plan data_parallel(int zero_stage) {
  Plan plan;
  plan.dp = ranks;
  plan.zero_stage = zero_stage;
  plan.sequence_length = 2048;
  plan.global_batch = ranks;
  plan.gradient_dtype = DType::bf16;
  plan.reduction_dtype = DType::bf16;
  return plan;
}

std::array<double, category_count> persistent_bytes(StageProgram const& stage) {
  std::array<double, category_count> bytes{};
  for (Buffer const& buffer : stage.buffers)
    if (buffer.persistent)
      bytes[static_cast<std::size_t>(buffer.category)] += bytes_of(buffer);
  return bytes;
}

double of(std::array<double, category_count> const& bytes, Category category) {
  return bytes[static_cast<std::size_t>(category)];
}

// Wire bytes per rank of the collectives over dp.
double data_parallel_bytes(Program const& program) {
  StageProgram const& stage = program.stages[0];
  double bytes = 0;
  for (Element const& element : stage.elements)
    if (Op const* op = std::get_if<Op>(&element);
        op != nullptr && is_collective(op->kind) && op->name != "average loss" && op->name != "global norm")
      bytes += wire_bytes(op->kind, whole_bytes(*op, [&](TensorId id) -> Tensor const& { return stage[id]; }), ranks);
  return bytes;
}

} // namespace

// Two-byte parameters and gradients, and fp32 master, first and second moment: 2 + 2 + 12 bytes a parameter. ZeRO 1 leaves
// each rank 1/64 of the 12. The paper's model has 7.5e9 parameters: 16 * 7.5e9 = 120 GB, (4 + 12/64) * 7.5e9 = 31.4 GB.
TEST_CASE("model states: 16 P bytes, ZeRO 1 (4 + 12 / N) P; for 7.5e9 parameters on 64 ranks 120 and 31.4 GB") {
  auto const P = static_cast<double>(parameter_count(gpt_7b()));
  REQUIRE(P == Approx(7.5e9).epsilon(0.01));
  for (int zero_stage : {0, 1}) {
    auto const bytes = persistent_bytes(compile(gpt_7b(), data_parallel(zero_stage)).stages[0]);
    double const shards = zero_stage == 1 ? ranks : 1;
    CHECK(of(bytes, Category::parameters) == 2 * P);
    CHECK(of(bytes, Category::gradients) == 2 * P);
    CHECK(of(bytes, Category::optimizer) == 12 * P / shards);
    CHECK(of(bytes, Category::scratch) == 8); // loss and sum of squares
    double const states = of(bytes, Category::parameters) + of(bytes, Category::gradients) +
                          of(bytes, Category::optimizer);
    CHECK(states / P * 7.5e9 == Approx(zero_stage == 1 ? 31.40625e9 : 120e9).epsilon(1e-12));
  }
}

// Reduce-scatter and gather together are an all-reduce: 2 (N - 1) / N * 2 P bytes in both (notes: algorithms.md 3.1).
TEST_CASE("data parallelism moves 2 (N - 1) / N of the gradients' bytes, with and without ZeRO 1") {
  auto const P = static_cast<double>(parameter_count(gpt_7b()));
  for (int zero_stage : {0, 1})
    CHECK(data_parallel_bytes(compile(gpt_7b(), data_parallel(zero_stage))) ==
          Approx(2.0 * 63 / 64 * 2 * P).epsilon(1e-12));
}

// Accumulated and reduced in fp32 (Megatron): 18 P unsharded, (6 + 12 / N) P sharded.
TEST_CASE("with fp32 gradients: 18 P, and (6 + 12 / N) P") {
  auto const P = static_cast<double>(parameter_count(gpt_7b()));
  for (int zero_stage : {0, 1}) {
    Plan plan = data_parallel(zero_stage);
    plan.gradient_dtype = plan.reduction_dtype = DType::fp32;
    auto const bytes = persistent_bytes(compile(gpt_7b(), plan).stages[0]);
    double const states = of(bytes, Category::parameters) + of(bytes, Category::gradients) +
                          of(bytes, Category::optimizer);
    CHECK(states == (zero_stage == 1 ? (6 + 12.0 / ranks) * P : 18 * P));
  }
}

namespace {

// Wire bytes per rank and step of the collectives over these axes whose tensors are states.
double bytes_over(Program const& program, AxisSet axes) {
  StageProgram const& stage = program.stages[0];
  double bytes = 0;
  for (Element const& element : stage.elements)
    if (Op const* op = std::get_if<Op>(&element);
        op != nullptr && is_collective(op->kind) && op->group.axes == axes && stage[op->reads[0]].elements() > 1)
      bytes += wire_bytes(op->kind, whole_bytes(*op, [&](TensorId id) -> Tensor const& { return stage[id]; }),
                          group_size(program.plan, axes));
  return bytes;
}

// Parameters of gpt_7b: the tied table with the last norm, the learned positions, and a block, one unit each.
constexpr double table = 51200.0 * 4096 + 2 * 4096;
constexpr double positions = 2048.0 * 4096;
constexpr double block = 12.0 * 4096 * 4096 + 13 * 4096; // matrices; biases 3 + 1 + 4 + 1, norms 4 times h

// Most bytes of a category alive at once among temporaries.
double most_alive(Program const& program, Category category) {
  double most = 0;
  walk(program, program.stages[0], [&](Instance const&, Alive const& alive) {
    double bytes = 0;
    for (auto const& [key, buffer] : alive)
      if (buffer.category == category)
        bytes += bytes_of(buffer);
    most = std::max(most, bytes);
  });
  return most;
}

} // namespace

// Of 2 + 2 + 12 bytes: ZeRO 2 shares out all but the parameters, (2 + 14 / 64) * 7.5e9 = 16.6 GB, ZeRO 3 everything,
// 16 / 64 * 7.5e9 = 1.9 GB.
TEST_CASE("model states: ZeRO 2 (2 + 14 / N) P, ZeRO 3 16 P / N; 16.6 and 1.9 GB") {
  auto const P = static_cast<double>(parameter_count(gpt_7b()));
  REQUIRE(P == table + positions + 36 * block);
  for (int zero_stage : {2, 3}) {
    auto const bytes = persistent_bytes(compile(gpt_7b(), data_parallel(zero_stage)).stages[0]);
    double const states = of(bytes, Category::parameters) + of(bytes, Category::gradients) +
                          of(bytes, Category::optimizer);
    CHECK(states == (zero_stage == 2 ? (2 + 14.0 / ranks) * P : 16.0 / ranks * P));
    CHECK(states / P * 7.5e9 == Approx(zero_stage == 2 ? 16.640625e9 : 1.875e9).epsilon(1e-12));
  }
}

// Every micro-batch scatters its gradients; the updated parameters are gathered once: (m + 1) P elements of 2 bytes.
TEST_CASE("ZeRO 2 moves 2 P elements, and P more for each further micro-batch") {
  auto const P = static_cast<double>(parameter_count(gpt_7b()));
  for (int m : {1, 2, 3}) {
    Plan plan = data_parallel(2);
    plan.global_batch = ranks * m;
    CHECK(bytes_over(compile(gpt_7b(), plan), Axis::dp) == Approx((m + 1) * 2 * P * 63 / 64).epsilon(1e-12));
  }
}

// ZeRO 3: P gathered for the forward, P for the backward, P scattered. The backward of the first layer reads no parameters:
// the positions are gathered for the forward only, and the table (tied) for the first layer and for the head, whose backward
// follows its forward at once.
TEST_CASE("ZeRO 3 moves 3 P elements a micro-batch, SHARD_GRAD_OP 2 P, gathering once (m + 1) P") {
  auto const P = static_cast<double>(parameter_count(gpt_7b()));
  for (int m : {1, 2}) {
    Plan plan = data_parallel(3);
    plan.global_batch = ranks * m;
    CHECK(bytes_over(compile(gpt_7b(), plan), Axis::dp) ==
          Approx(m * (3 * P - positions) * 2 * 63 / 64).epsilon(1e-12));
    plan.sharding.reshard = Reshard::after_backward;
    CHECK(bytes_over(compile(gpt_7b(), plan), Axis::dp) == Approx(m * 2 * P * 2 * 63 / 64).epsilon(1e-12));
    plan.sharding.reshard = Reshard::after_step;
    CHECK(bytes_over(compile(gpt_7b(), plan), Axis::dp) == Approx((m + 1) * P * 2 * 63 / 64).epsilon(1e-12));
    plan.sharding.reduce_once = true;
    CHECK(bytes_over(compile(gpt_7b(), plan), Axis::dp) == Approx(2 * P * 2 * 63 / 64).epsilon(1e-12));
  }
}

// Groups of 8, 8 replicas: inside a group as ZeRO 3 over 8 ranks; the sum over replicas is an all-reduce of the shard of P / 8,
// 2 * 7 / 8 * P / 8 elements, every micro-batch or once (notes: algorithms.md 3.1).
TEST_CASE("HSDP moves 3 P (F - 1) / F inside a group and 2 P / F (R - 1) / R across") {
  auto const P = static_cast<double>(parameter_count(gpt_7b()));
  for (bool once : {false, true}) {
    Plan plan = data_parallel(3);
    plan.zero_group = 8;
    plan.global_batch = 2 * ranks;
    plan.sharding.reduce_replicas_once = once;
    Program const program = compile(gpt_7b(), plan);
    CHECK(bytes_over(program, Axis::dp) == Approx(2 * (3 * P - positions) * 2 * 7 / 8).epsilon(1e-12));
    CHECK(bytes_over(program, Axis::replica) == Approx((once ? 1 : 2) * 2 * P / 8 * 7 / 8 * 2).epsilon(1e-12));
    auto const bytes = persistent_bytes(program.stages[0]);
    CHECK(of(bytes, Category::parameters) + of(bytes, Category::gradients) + of(bytes, Category::optimizer) ==
          16 * P / 8);
  }
}

// With one layer ahead: at the first layer its unit, the table and the first block. Of gradients: the tied table's during the
// whole backward, a block's that is being written, and the one's before, which is being scattered.
TEST_CASE("ZeRO 3 keeps the running layer's parameters and the next one's, and two layers' gradients") {
  Program const program = compile(gpt_7b(), data_parallel(3));
  CHECK(most_alive(program, Category::parameters) == 2 * (positions + table + block));
  CHECK(most_alive(program, Category::gradients) == 2 * (table + 2 * block));
}

namespace {

Plan zero_pp(int inner_group) {
  Plan plan = data_parallel(3);
  plan.sharding.inner_group = inner_group;
  return plan;
}

// Bytes of the fp32 scales of a bucket in `blocks` blocks: groups of at most 8000 elements.
double scale_bytes(double elements, int blocks) { return 4.0 * blocks * std::ceil(elements / blocks / 8000); }

constexpr double matrices = 12.0 * 4096 * 4096; // of a block
constexpr AxisSet world{Axis::dp, Axis::replica};

} // namespace

// hpZ (ZeRO++, arXiv 2306.10209, section 3.2): the blocks' gathers for the backward stay inside groups of 8, from
// shards that the forward keeps, 1 / 8 of the blocks more memory. The ends are gathered for forwards only.
TEST_CASE("hpZ: the backward gathers inside the group; 1 / G of what it gathers is kept") {
  auto const P = static_cast<double>(parameter_count(gpt_7b()));
  double const base = of(persistent_bytes(compile(gpt_7b(), zero_pp(8)).stages[0]), Category::parameters);
  CHECK(base == 2 * P / ranks);
  Plan plan = zero_pp(8);
  plan.sharding.secondary_shard = true;
  Program const program = compile(gpt_7b(), plan);
  CHECK(bytes_over(program, Axis::dp) == Approx(36 * block * 2 * 7 / 8).epsilon(1e-12));
  CHECK(bytes_over(program, world) == Approx((P + table + P) * 2 * 63 / 64).epsilon(1e-12));
  CHECK(of(persistent_bytes(program.stages[0]), Category::parameters) == base + 36 * block * 2 / 8);
  plan.sharding.weight_bits = 8; // kept as codes: half, and scales
  CHECK(of(persistent_bytes(compile(gpt_7b(), plan).stages[0]), Category::parameters) ==
        base + 36 * (block / 8 + scale_bytes(block / 8, 1)));
}

// qwZ (section 3.1): a byte an element, and the scales of every rank's shard.
TEST_CASE("qwZ: gathers move half the bytes, and 4 in 8000 more for scales") {
  auto const P = static_cast<double>(parameter_count(gpt_7b()));
  Plan plan = zero_pp(0);
  plan.sharding.weight_bits = 8;
  double const scales = scale_bytes(positions, ranks) + 2 * scale_bytes(table, ranks) + 72 * scale_bytes(block, ranks);
  double const gathered = 2 * P - positions;
  CHECK(bytes_over(compile(gpt_7b(), plan), Axis::dp) == Approx((gathered + scales + 2 * P) * 63 / 64).epsilon(1e-12));
  CHECK(scales / gathered == Approx(4.0 / 8000).epsilon(0.005));
}

// qgZ (section 4): of a matrix's 2 E bytes M, M / 4 (G - 1) / G inside the group, and M / (4 G) (n - 1) / n across n
// groups, with scales; norms and biases are reduced as they are.
TEST_CASE("qgZ: M / 4 (G - 1) / G inside the group, M / (4 G) (n - 1) / n across") {
  auto const P = static_cast<double>(parameter_count(gpt_7b()));
  Plan plan = zero_pp(8);
  plan.sharding.gradient_bits = 4;
  Program const program = compile(gpt_7b(), plan);
  double const words = table - 2 * 4096; // the table without the last norm
  double const M = 2 * (words + positions + 36 * matrices);
  double scales = 0;                       // of the first hop
  constexpr double square = 4096.0 * 4096; // qkv, out, and the MLP's two
  for (auto const& [count, elements] :
       {std::pair(1.0, words), {1, positions}, {36, 3 * square}, {36, square}, {72, 4 * square}})
    scales += count * scale_bytes(elements, ranks);
  double const vectors = P - M / 2;
  double const gathered = 2 * P - positions - 2 * 4096; // the last norm, apart from the table, for the head alone
  CHECK(bytes_over(program, Axis::dp) == Approx((M / 4 + scales) * 7 / 8).epsilon(1e-12));
  CHECK(bytes_over(program, Axis::replica) == Approx((M / 4 + scales) / 8 * 7 / 8).epsilon(1e-12));
  CHECK(bytes_over(program, world) == Approx((gathered + vectors) * 2 * 63 / 64).epsilon(1e-12));
}

// What a group of 8 sends to the 7 others, in units of 7 / 8: of a gather or scatter over all its whole, of a second
// hop what its 8 ranks exchange. ZeRO 3 with an untied head: M for the forward, M for the blocks' backward, M of
// gradients; ZeRO++: M / 2, nothing, M / 4 (the table of section 1), with 1 in 2000 for scales and the vectors'
// gradients.
TEST_CASE("ZeRO++ sends 0.75 M across groups instead of 3 M, in every micro-batch") {
  Model model = gpt_7b();
  model.tied_embeddings = false;
  auto const M = 2 * static_cast<double>(parameter_count(model));
  for (int m : {1, 3}) {
    Plan plan = zero_pp(8);
    plan.global_batch = ranks * m;
    auto across = [&] {
      Program const program = compile(model, plan);
      return bytes_over(program, world) * 64 / 63 + 8 * bytes_over(program, Axis::replica) * 8 / 7;
    };
    CHECK(across() == Approx(m * (2 * M + 36 * block * 2)).epsilon(1e-3)); // but for the last norm, with the head
    plan.sharding.secondary_shard = true;
    CHECK(across() == Approx(m * 2 * M).epsilon(1e-12));
    plan.sharding.weight_bits = 8;
    CHECK(across() == Approx(m * 1.5 * M).epsilon(1e-3));
    plan.sharding.gradient_bits = 4;
    CHECK(across() == Approx(m * 0.75 * M).epsilon(2e-3));
  }
}

// A sum of E elements in 2 bytes moves 2 * 2 E (t - 1) / t; as codes of 8 bits E (t - 1) / t to exchange terms and as
// much to gather sums, with fp32 scales of groups of at most 8000.
TEST_CASE("sums over tp as codes of 8 bits move half the bytes, with 4 in 8000 more for scales") {
  Plan plan;
  plan.tp = 8;
  plan.sequence_length = 2048;
  plan.global_batch = 1;
  double const elements = 2048.0 * 4096;
  auto moved = [&](int tp_bits) {
    plan.tp_bits = tp_bits;
    Program const program = compile(gpt_7b(), plan);
    LayerProgram const& block = program.layer_programs[1];
    double bytes = 0;
    for (Op const& op : block.forward)
      if (is_collective(op.kind))
        bytes += wire_bytes(op.kind, whole_bytes(op, [&](TensorId id) -> Tensor const& { return block[id]; }), 8);
    return bytes;
  };
  CHECK(moved(0) == 2 * 2 * 2 * elements * 7 / 8);
  CHECK(moved(8) == Approx(2 * 2 * (elements + scale_bytes(elements, 8)) * 7 / 8).epsilon(1e-12));
}

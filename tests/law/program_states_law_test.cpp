// Model states (ZeRO, arXiv 1910.02054, figure 1; notes: algorithms.md 2.1) and what data parallelism moves, read off the
// programs' buffers and ops.
#include "model/model.hpp"
#include "program/compile.hpp"
#include "tests/catch.hpp"
#include "tests/law/program_counts.hpp"

#include <array>

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

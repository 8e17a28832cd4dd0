// Activation bytes that a block keeps from its forward to its backward (Korthikanti et al., arXiv 2205.05198; notes:
// algorithms.md 2.2, 2.3, 12.3). The statistics of the norms (8 bytes a token) are not kept here: the backward computes
// them again from the norm's input; the formulas leave them out as well.
#include "model/read_model.hpp"
#include "program/compile.hpp"
#include "tests/catch.hpp"
#include "tests/law/program_counts.hpp"

using namespace foreplan;

namespace {

Model model_from(std::string const& file) { return read_model(std::string(FOREPLAN_ROOT) + "/models/" + file); }

// What block `layer` holds of its own when the first backward op of the step begins: its local buffers and its input.
double kept_bytes(Model model, Plan const& plan, int layer) {
  model.layers = 2;
  Program const program = compile(model, plan);
  double kept = 0;
  bool in_backward = false;
  walk(program, program.stages[0], [&](Instance const& instance, Alive const& alive) {
    if (in_backward || instance.op->part == Part::forward || instance.op->part == Part::step)
      return;
    in_backward = true;
    for (auto const& [key, buffer] : alive) {
      bool const is_local = key.space == BufferKey::Space::local && key.layer == layer;
      bool const is_input = key.space == BufferKey::Space::activation && key.index == layer;
      if (is_local || is_input)
        kept += bytes_of(buffer);
    }
  });
  return kept;
}

Plan plan_of(std::int64_t s, std::int64_t b, int tp, bool sequence_parallel, Recompute recompute, Attention attention) {
  Plan plan;
  plan.sequence_length = s;
  plan.micro_batch = plan.global_batch = b;
  plan.tp = tp;
  plan.sequence_parallel = sequence_parallel;
  plan.recompute = recompute;
  plan.attention = attention;
  return plan;
}

} // namespace

// s b h (34 + 5 a s / h). 34: attention 11 (norm output 2, Q, K and V 6, output 2, mask 1), MLP 19 (norm output 2, GELU's
// input 8 and output 8, mask 1), inputs of the two norms 4. 5: softmax 2, its dropout mask 1, what is dropped out 2.
TEST_CASE("GPT-3 175B keeps s b h (34 + 5 a s / h) bytes a block, cut by tp, sp and recompute") {
  Model const model = model_from("gpt-3-175b.json");
  double const s = 2048, b = 1, h = 12288, a = 96, sbh = s * b * h, core = 5 * a * s / h;
  REQUIRE(core == 80);
  auto kept = [&](int tp, bool sp, Recompute recompute, Attention attention = Attention::unfused) {
    return kept_bytes(model, plan_of(2048, 1, tp, sp, recompute, attention), 1);
  };
  CHECK(kept(1, false, Recompute::none) == sbh * (34 + core));
  CHECK(kept(8, false, Recompute::none) == sbh * (10 + 24.0 / 8 + core / 8));
  CHECK(kept(8, true, Recompute::none) == sbh / 8 * (34 + core));
  CHECK(kept(8, true, Recompute::selective) == sbh / 8 * 34);
  CHECK(kept(8, false, Recompute::full) == 2 * sbh);
  CHECK(kept(8, true, Recompute::full) == 2 * sbh / 8);
  // In GB, as published.
  CHECK(kept(1, false, Recompute::none) == Approx(2.869e9).epsilon(3e-4));
  CHECK(kept(8, false, Recompute::none) == Approx(0.579e9).epsilon(1e-3));
  CHECK(kept(8, true, Recompute::none) == Approx(0.359e9).epsilon(2e-3));
  CHECK(kept(8, true, Recompute::selective) == Approx(0.107e9).epsilon(1e-3));
  CHECK(kept(1, false, Recompute::full) == Approx(0.050e9).epsilon(7e-3));
  // Fused attention keeps an fp32 log-sum-exp a head and token instead of the core.
  CHECK(kept(8, true, Recompute::none, Attention::fused) == sbh / 8 * 34 + 4 * a * s * b / 8);
}

// 8 h (norm inputs and outputs) + 2 (2 a d + 2 g d) (Q, output, K, V) + 6 f (gate, up, their product) + 4 a (log-sum-exp)
// bytes a token.
TEST_CASE("Llama keeps 8 h + 4 (a + g) d + 6 f + 4 a bytes a token and block") {
  Model llama2 = model_from("llama-3.1-8b.json"); // Llama-2-7B: 32 KV heads, narrower MLP, smaller vocabulary
  llama2.kv_heads = 32;
  llama2.ffn = 11008;
  llama2.vocabulary = 32000;
  auto bytes_per_token = [](Model const& model, int tp, bool sp, std::int64_t b) {
    return kept_bytes(model, plan_of(1024, b, tp, sp, Recompute::none, Attention::fused), 1) /
           (1024.0 * static_cast<double>(b));
  };
  CHECK(bytes_per_token(llama2, 1, false, 1) == 131712);
  CHECK(bytes_per_token(model_from("llama-3.1-8b.json"), 1, false, 2) == 139392);
  CHECK(bytes_per_token(model_from("llama-3.1-70b.json"), 1, false, 1) == 274688);
  // tp 8: without sequence parallelism 8 h = 65536 stays whole, with it everything is cut.
  CHECK(bytes_per_token(model_from("llama-3.1-70b.json"), 8, false, 1) == 65536 + (274688 - 65536) / 8.0);
  CHECK(bytes_per_token(model_from("llama-3.1-70b.json"), 8, true, 1) == 274688 / 8.0);
}

// Llama-3-8B, 8192 tokens: 32 blocks keep 36.54 GB, and with full recompute 32 inputs of 2 s b h = 2.15 GB.
TEST_CASE("Llama-3-8B at 8192 tokens keeps 36.54 GB in 32 blocks, 2.15 GB with full recompute") {
  Model const model = model_from("llama-3.1-8b.json");
  CHECK(32 * kept_bytes(model, plan_of(8192, 1, 1, false, Recompute::none, Attention::fused), 1) ==
        Approx(36.54e9).epsilon(1e-3));
  CHECK(32 * kept_bytes(model, plan_of(8192, 1, 1, false, Recompute::full, Attention::fused), 1) ==
        32.0 * 2 * 8192 * 4096);
}

// Which of two blocks, and whether the MLP's width is 4 h, does not matter: 34 becomes 18 + 4 f / h, 24 becomes 8 + 4 f / h.
TEST_CASE("another MLP width: s b h (18 + 4 f / h + 5 a s / h)") {
  Model model = model_from("gpt-3-175b.json");
  model.ffn = 3 * model.hidden;
  double const sbh = 2048.0 * 12288;
  Plan const plan = plan_of(2048, 1, 1, false, Recompute::none, Attention::unfused);
  CHECK(kept_bytes(model, plan, 1) == sbh * (18 + 4 * 3 + 80));
  CHECK(kept_bytes(model, plan, 2) == sbh * (18 + 4 * 3 + 80));
  CHECK(kept_bytes(model, plan_of(2048, 1, 8, false, Recompute::none, Attention::unfused), 1) ==
        sbh * (10 + (8 + 4 * 3 + 80) / 8.0));
}

// Logits in bf16 are cast to fp32, and back from their gradients: 2 + 4 bytes each at a time, of the T / c rows of a chunk
// and V / t columns. Between forward and backward none is left.
TEST_CASE("in c chunks the loss holds 6 T V / (t c) bytes of logits") {
  Model model = model_from("llama-3.1-8b.json");
  model.layers = 2;
  double const T = 2048, V = static_cast<double>(model.vocabulary);
  for (int tp : {1, 4})
    for (int chunks : {1, 2, 16}) {
      Plan plan = plan_of(2048, 1, tp, tp > 1, Recompute::none, Attention::fused);
      plan.loss_chunks = chunks;
      Program const program = compile(model, plan);
      double most = 0, in_forward = 0;
      walk(program, program.stages[0], [&](Instance const& instance, Alive const& alive) {
        double logits = 0;
        for (auto const& [key, buffer] : alive)
          if (buffer.category == Category::logits)
            logits += bytes_of(buffer);
        most = std::max(most, logits);
        if (instance.op->part == Part::forward)
          in_forward = std::max(in_forward, logits);
      });
      CHECK(most == 6 * T * V / tp / chunks);
      CHECK((chunks == 1 || in_forward == 0));
    }
}

// The head's products of all chunks are those of the whole, and each chunk sums two values a row over tp: a maximum, and a
// pair of sums. One gather serves both products with the final norm's output.
TEST_CASE("the loss in chunks does the same work and gathers once") {
  Model model = model_from("llama-3.1-8b.json");
  model.layers = 2;
  Plan plan = plan_of(2048, 1, 4, true, Recompute::none, Attention::fused);
  auto const count = [&](int chunks, OpKind kind) {
    plan.loss_chunks = chunks;
    Program const program = compile(model, plan);
    std::vector<Op> ops = program.layer_programs.back().forward;
    ops.insert(ops.end(), program.layer_programs.back().backward.begin(), program.layer_programs.back().backward.end());
    return std::count_if(ops.begin(), ops.end(), [&](Op const& op) { return op.kind == kind; });
  };
  CHECK(count(1, OpKind::linear_forward) == 1);
  CHECK(count(4, OpKind::linear_forward) == 4);
  CHECK(count(4, OpKind::linear_input_gradient) == 4);
  CHECK(count(4, OpKind::linear_weight_gradient) == 4);
  CHECK(count(4, OpKind::all_reduce) == 4 * count(1, OpKind::all_reduce));
  CHECK(count(1, OpKind::all_gather) == 2);
  CHECK(count(4, OpKind::all_gather) == 1);
  CHECK(count(4, OpKind::reduce_scatter) == 1);
}

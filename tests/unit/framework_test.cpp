#include "io/input_error.hpp"
#include "plan/framework.hpp"
#include "plan/process_groups.hpp"
#include "plan/read_plan.hpp"
#include "program/amounts.hpp"
#include "program/compile.hpp"
#include "program/verifier.hpp"
#include "tests/catch.hpp"

#include <filesystem>

namespace foreplan {
namespace {

Model llama(int layers) {
  Model model;
  model.name = "small";
  model.layers = layers;
  model.hidden = 2048;
  model.heads = model.kv_heads = 32;
  model.head_size = 64;
  model.ffn = 8192;
  model.vocabulary = 131072;
  return model;
}

Framework framework_of(std::string const& fields) {
  return read_framework(
      JsonReader::read_text("{\"format\": \"foreplan framework 1\", \"name\": \"x\"" + fields + "}", "text"));
}

} // namespace

TEST_CASE("every framework profile reads, and names a source for each value", "[framework]") {
  int count = 0;
  for (auto const& file : std::filesystem::directory_iterator(FOREPLAN_ROOT "/framework_profiles")) {
    Framework const framework = read_framework(file.path().string());
    CHECK(framework.name == file.path().stem().string());
    CHECK_FALSE(framework.sources.empty());
    ++count;
  }
  CHECK(count >= 8);
}

TEST_CASE("a framework's mechanisms are resolved into the plan", "[framework]") {
  Framework const framework = framework_of(
      R"(, "issue": {"value": "50 us", "source": "s"}, "fused_accumulation": {"value": false, "source": "s"},
         "gradient_dtype_fp16": {"value": "fp16", "source": "s"})");
  Plan plan;
  CHECK(as_run_by(framework, plan).gradient_dtype == DType::fp32);
  plan.parameter_dtype = DType::fp16;
  plan.schedule = Schedule::interleaved;
  Plan const run = as_run_by(framework, plan);
  CHECK(run.gradient_dtype == DType::fp16);
  CHECK(run.p2p == P2p::overlapped); // the interleaved schedule asks for it
  CHECK_FALSE(run.execution.fused_accumulation);
  CHECK(run.execution.issue.value() == Approx(50e-6));
}

// What the user decides (stage, group, a reshard other than the default, ZeRO++) stays; how it is run is the framework's.
TEST_CASE("a framework says how states are shared out", "[framework]") {
  Framework const framework = framework_of(
      R"(, "prefetch": {"value": 2, "source": "s"}, "max_live_parameters": {"value": 1000, "source": "s"},
         "cp_type": {"value": "ring", "source": "s"}, "pipeline_reshard": {"value": "after_step", "source": "s"},
         "pipeline_reduce_once": {"value": true, "source": "s"})");
  Plan plan;
  plan.zero_stage = 3;
  plan.zero_group = 8;
  plan.sharding.inner_group = 8;
  plan.sharding.weight_bits = 8;
  Plan run = as_run_by(framework, plan);
  CHECK(run.zero_stage == 3);
  CHECK(run.zero_group == 8);
  CHECK(run.sharding.inner_group == 8);
  CHECK(run.sharding.weight_bits == 8);
  CHECK(run.sharding.prefetch == 2);
  CHECK(run.sharding.max_live == 1000);
  CHECK(run.sharding.reshard == Reshard::after_use);
  CHECK_FALSE(run.sharding.reduce_once);
  CHECK(framework.cp_type == ContextParallel::ring);
  CHECK(run.cp_type == ContextParallel::all_gather); // the plan's own
  plan.pp = 2;
  run = as_run_by(framework, plan);
  CHECK(run.sharding.reshard == Reshard::after_step);
  CHECK(run.sharding.reduce_once);
  plan.sharding.reshard = Reshard::after_backward;
  CHECK(as_run_by(framework, plan).sharding.reshard == Reshard::after_backward);
}

TEST_CASE("a framework profile is refused with the key at fault", "[framework]") {
  CHECK_THROWS_AS(framework_of(R"(, "isue": {"value": "50 us", "source": "s"})"), InputError);
  CHECK_THROWS_AS(framework_of(R"(, "issue": {"value": "50 us"})"), InputError); // no source
}

// 50257 rows with tp 8: multiples of 128 * 8 = 1024; 50 * 1024 = 51200.
TEST_CASE("the vocabulary is padded to a multiple of tp", "[framework]") {
  Framework framework;
  framework.vocabulary_multiple = 128;
  CHECK(padded_vocabulary(framework, 50257, 8) == 51200);
  CHECK(padded_vocabulary(framework, 51200, 8) == 51200);
}

// A block has 4 * 2048^2 + 3 * 2048 * 8192 = 16.78e6 + 50.33e6 = 67.1e6 parameters in products, the head 131072 * 2048 =
// 268.4e6, as many as 4 blocks. With 16 blocks that are 20 blocks' worth: half of it are 10 blocks.
TEST_CASE("stages are closed when they reach their share of the cost", "[framework]") {
  Plan plan;
  plan.pp = 2;
  plan.execution.layer_placement = LayerPlacement::cost_share;
  LayerRange const first = layers_of(llama(16), plan, Stage(0), Chunk(0));
  LayerRange const last = layers_of(llama(16), plan, Stage(1), Chunk(0));
  CHECK(first.first == 0);
  CHECK(first.last == 11); // embedding and 10 blocks
  CHECK(last.first == 11);
  CHECK(last.last == 18); // 6 blocks and the head
}

TEST_CASE("the execution survives the plan's JSON", "[framework]") {
  Plan plan;
  plan.sequence_length = 128;
  plan.global_batch = 8;
  plan.execution.issue = Seconds(55e-6);
  plan.execution.eager_loss = plan.execution.portable_attention = true;
  plan.execution.async_tensor_parallel = false;
  plan.execution.layer_placement = LayerPlacement::cost_share;
  Plan const again = read_plan(JsonReader::read_text(plan_json(plan), "text"));
  CHECK(again.execution.issue.value() == Approx(55e-6));
  CHECK(again.execution.eager_loss);
  CHECK(again.execution.portable_attention);
  CHECK_FALSE(again.execution.async_tensor_parallel);
  CHECK(again.execution.layer_placement == LayerPlacement::cost_share);
}

// Whatever a trainer does, the program is a correct training step: proved by the verifier.
TEST_CASE("programs of eager and blocking trainers are well formed", "[framework]") {
  for (bool const sequence_parallel : {false, true})
    for (Attention const attention : {Attention::fused, Attention::unfused}) {
      Plan plan;
      plan.tp = plan.pp = plan.dp = 2;
      plan.zero_stage = 1;
      plan.sequence_parallel = sequence_parallel;
      plan.recompute = attention == Attention::unfused ? Recompute::full : Recompute::none;
      plan.recompute_unused = true;
      plan.sequence_length = 128;
      plan.global_batch = 8;
      plan.attention = attention;
      plan.execution.fused_accumulation = plan.execution.async_tensor_parallel = false;
      plan.execution.eager_activations = plan.execution.eager_layout = plan.execution.eager_loss = true;
      plan.execution.eager_norms = plan.execution.eager_rotary = true;
      plan.execution.broadcast_parameters = true;
      for (Finding const& finding : verify(compile(llama(4), plan)))
        FAIL_CHECK(finding.text);
    }
}

// A root mean square norm by PyTorch's functions. Forward: cast up (2 + 4 bytes an element), square and product in fp32 (8
// each), cast down (4 + 2), product with the weight by a pass of its own (4): 32 bytes more than in one kernel. Backward 6 +
// 7 * 8 + 6 + 4 = 72.
TEST_CASE("what norms by functions read and write", "[framework]") {
  Plan plan;
  plan.sequence_length = 128;
  plan.global_batch = 1;
  auto bytes_of = [&](std::vector<Op> const& ops, LayerProgram const& block) {
    double sum = 0;
    for (Op const& op : ops)
      if (kernel_class(op.kind) != KernelClass::none)
        sum += amount_of(op, operands_of(block, op)).bytes.value();
    return sum;
  };
  LayerProgram const fused = compile(llama(2), plan).layer_programs[1];
  plan.execution.eager_norms = true;
  LayerProgram const eager = compile(llama(2), plan).layer_programs[1];
  double const elements = 128.0 * static_cast<double>(llama(2).hidden);
  CHECK(bytes_of(eager.forward, eager) - bytes_of(fused.forward, fused) == Approx(2 * 32 * elements));
  CHECK(bytes_of(eager.backward, eager) - bytes_of(fused.backward, fused) == Approx(2 * 72 * elements));
}

} // namespace foreplan

// Plans as JSON: what is written is read back, and what cannot be read is refused with file, key, value and rule.
#include "plan/read_plan.hpp"
#include "tests/catch.hpp"

using namespace foreplan;

namespace {

Plan read(std::string const& text) { return read_plan(JsonReader::read_text(text, "plan.json", "foreplan plan 1")); }

std::string error_of(std::string const& fields) {
  try {
    read(R"({"format": "foreplan plan 1", "sequence_length": 8, "global_batch": 4, )" + fields + "}");
  } catch (InputError const& error) {
    return error.what();
  }
  return {};
}

bool names(std::string const& text, std::initializer_list<char const*> words) {
  for (char const* word : words)
    if (text.find(word) == std::string::npos)
      return false;
  return text.find('\n') == std::string::npos;
}

} // namespace

// Every field differs from its default.
TEST_CASE("a plan written is the plan read") {
  Plan plan;
  plan.tp = 8;
  plan.pp = 4;
  plan.dp = 2;
  plan.chunks = 5;
  plan.sequence_parallel = true;
  plan.zero_stage = 1;
  plan.zero_group = 2;
  plan.sharding = {.reshard = Reshard::after_backward,
                   .reduce_once = true,
                   .reduce_replicas_once = true,
                   .prefetch = 3,
                   .prefetch_elements = 50'000'000,
                   .reuse_distance = 1'000'000'000,
                   .max_live = 1'000'000'000,
                   .persistence_threshold = 100'000,
                   .inner_group = 2,
                   .secondary_shard = true,
                   .weight_bits = 8,
                   .gradient_bits = 4};
  plan.offload = {.optimizer = MemoryTier::host,
                  .ratio = 0.5,
                  .tile = 1'000'000,
                  .parameters = MemoryTier::disk,
                  .prefetch = 2,
                  .sub_group = 1'000'000'000,
                  .checkpoints = true};
  plan.layout = {3, 4, 4, 3};
  plan.micro_batch_group = 8;
  plan.domino_columns = 2;
  plan.domino = Domino::intra_layer;
  plan.tp_overlap = true;
  plan.tp_bits = 8;
  plan.execution.gradient_launches = 4;
  plan.schedule = Schedule::interleaved;
  plan.recompute = Recompute::selective;
  plan.recompute_layers = 2;
  plan.recompute_unused = true;
  plan.sequence_length = 8192;
  plan.micro_batch = 2;
  plan.global_batch = 128;
  plan.parameter_dtype = DType::fp16;
  plan.gradient_dtype = DType::bf16;
  plan.reduction_dtype = DType::bf16;
  plan.bucket_elements = 40'000'000;
  plan.gradient_clip = 0.1;
  plan.attention = Attention::unfused;
  plan.p2p = P2p::overlapped;
  plan.cp = 4;
  plan.cp_type = ContextParallel::ring;
  plan.domino_slices = 2;
  CHECK(read(plan_json(plan)) == plan);
  CHECK(plan_json(read(plan_json(plan))) == plan_json(plan));
}

TEST_CASE("every value of every choice is read back") {
  Plan plan;
  plan.sequence_length = plan.global_batch = 1;
  for (Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved})
    for (Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
      for (DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
        plan.schedule = schedule;
        plan.recompute = recompute;
        plan.parameter_dtype = plan.gradient_dtype = plan.reduction_dtype = dtype;
        CHECK(read(plan_json(plan)) == plan);
      }
}

TEST_CASE("only the sequence length and the global batch are required") {
  Plan plan;
  plan.sequence_length = 8192;
  plan.global_batch = 128;
  CHECK(read(R"({"format": "foreplan plan 1", "sequence_length": 8192, "global_batch": 128})") == plan);
  CHECK_THROWS_AS(read(R"({"format": "foreplan plan 1", "sequence_length": 8192})"), InputError);
  CHECK_THROWS_AS(read(R"({"format": "foreplan plan 1", "global_batch": 128})"), InputError);
  CHECK_THROWS_AS(read(R"({"format": "foreplan model 1", "sequence_length": 8192, "global_batch": 128})"), InputError);
}

TEST_CASE("errors name the file, the key, the value and what is valid") {
  CHECK(
      names(error_of(R"("schedule": "zigzag")"), {"plan.json", "schedule", "zigzag", "gpipe", "1f1b", "interleaved"}));
  CHECK(names(error_of(R"("tp": 0)"), {"plan.json", "tp", "0", "1"}));
  CHECK(names(error_of(R"("zero_stage": 4)"), {"plan.json", "zero_stage", "4"}));
  CHECK(names(error_of(R"("gradient_dtype": "int32")"), {"gradient_dtype", "int32", "bf16", "fp32"}));
  CHECK(names(error_of(R"("gradient_clip": -1)"), {"gradient_clip", "-1"}));
  CHECK(names(error_of(R"("pipeline": 4)"), {"plan.json", "pipeline"})); // unknown keys are refused
  CHECK(names(error_of(R"("bucket_elements": 1.5)"), {"bucket_elements", "1.5"}));
}

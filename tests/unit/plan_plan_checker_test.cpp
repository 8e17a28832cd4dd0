// Each rule of the plan checker: what it says of a plan that breaks it, and that the nearest valid values are valid.
#include "plan/plan_checker.hpp"
#include "tests/catch.hpp"

#include <limits>

using namespace foreplan;

namespace {

// 64 query heads and 8 KV heads, 28672 = 2^12 * 7 MLP columns, 128256 = 2^8 * 3 * 167 rows: what tp cuts has the common
// divisor 8.
Model llama() {
  Model model;
  model.name = "Llama-3.1-70B";
  model.layers = 80;
  model.hidden = 8192;
  model.heads = 64;
  model.kv_heads = 8;
  model.head_size = 128;
  model.ffn = 28672;
  model.vocabulary = 128256;
  model.max_positions = 131072;
  return model;
}

Plan legal() {
  Plan plan;
  plan.tp = 8;
  plan.pp = 4;
  plan.dp = 2;
  plan.sequence_length = 8192;
  plan.global_batch = 128;
  return plan;
}

template <class Change>
std::vector<PlanFinding> findings(Change change, Model const& model = llama()) {
  Plan plan = legal();
  change(plan);
  return check(model, plan);
}

// The one finding there is.
template <class Change>
PlanFinding only(Change change, Model const& model = llama()) {
  std::vector<PlanFinding> const all = findings(change, model);
  for (PlanFinding const& finding : all)
    INFO(finding.text);
  REQUIRE(all.size() == 1);
  return all[0];
}

using Values = std::vector<std::int64_t>;

} // namespace

TEST_CASE("a legal plan has no findings") {
  CHECK(check(llama(), legal()).empty());
  CHECK(
      findings([](Plan& plan) { plan.recompute = Recompute::selective; }).empty()); // with fused attention, and without
  CHECK(findings([](Plan& plan) {
          plan.recompute = Recompute::selective;
          plan.attention = Attention::unfused;
        }).empty());
}

TEST_CASE("sizes are at least 1, and what builds on them is not asked") {
  PlanFinding const finding = only([](Plan& plan) {
    plan.tp = 0;
    plan.zero_stage = 7;
  });
  CHECK(finding.rule == "tp is at least 1");
  CHECK(finding.text == "tp is 0: it must be at least 1; valid: 1");
  CHECK(only([](Plan& plan) { plan.pp = -1; }).rule == "pp is at least 1");
  CHECK(only([](Plan& plan) { plan.dp = 0; }).rule == "dp is at least 1");
  CHECK(only([](Plan& plan) { plan.chunks = 0; }).rule == "chunks is at least 1");
  CHECK(only([](Plan& plan) { plan.sequence_length = 0; }).rule == "sequence_length is at least 1");
  CHECK(only([](Plan& plan) { plan.micro_batch = 0; }).rule == "micro_batch is at least 1");
  CHECK(only([](Plan& plan) { plan.global_batch = 0; }).rule == "global_batch is at least 1");
}

TEST_CASE("sizes beyond all plans are refused before anything overflows") {
  std::int64_t const huge = std::numeric_limits<std::int64_t>::max();
  CHECK(only([&](Plan& plan) { plan.micro_batch = huge; }).rule == "micro_batch is at most 2147483648");
  CHECK(only([](Plan& plan) { plan.tp = plan.pp = plan.dp = 1 << 30; }).rule == "ranks");
}

TEST_CASE("tp divides what it cuts") {
  PlanFinding const heads = findings([](Plan& plan) { plan.tp = 3; })[0];
  CHECK(heads.rule == "tp divides heads");
  CHECK(heads.text == "tp 3 does not divide 64 heads; valid: 1, 2, 4, 8");
  CHECK(heads.nearest == Values{1, 2, 4, 8});
  // 16 divides the heads, the MLP and the vocabulary, not the 8 KV heads.
  PlanFinding const kv_heads = only([](Plan& plan) { plan.tp = 16; });
  CHECK(kv_heads.rule == "tp divides kv_heads");
  CHECK(kv_heads.text ==
        "tp 16 does not divide 8 KV heads (several ranks cannot share a KV head yet); valid: 1, 2, 4, 8");
  Model model = llama();
  model.ffn = 28668; // 4 * 7167
  CHECK(only([](Plan&) {}, model).text == "tp 8 does not divide 28668 columns of the MLP; valid: 1, 2, 4");
  model = llama();
  model.vocabulary = 50257; // GPT-2's: 29 * 1733
  CHECK(only([](Plan&) {}, model).text ==
        "tp 8 does not divide 50257 rows of the vocabulary (pad the model's vocabulary to a "
        "multiple of 128 * tp); valid: 1");
}

TEST_CASE("sequence parallelism needs tp > 1 that divides the tokens of a micro-batch") {
  CHECK(only([](Plan& plan) {
          plan.sequence_parallel = true;
          plan.tp = 1;
        }).rule == "sequence parallelism needs tp");
  PlanFinding const finding = only([](Plan& plan) {
    plan.sequence_parallel = true;
    plan.sequence_length = 4092; // 4 * 1023
  });
  CHECK(finding.rule == "tp divides tokens");
  CHECK(finding.text == "with sequence parallelism tp 8 must divide the 4092 tokens of a micro-batch; valid: 2, 4");
  CHECK(findings([](Plan& plan) { plan.sequence_length = 4092; }).empty());
}

// 80 blocks with embedding and head are 82 layers: 82 chunks have one each, 83 leave one empty. 2 blocks and 5 chunks: the
// two behind the embedding's chunk take the blocks, the fourth has nothing.
TEST_CASE("every chunk has a layer") {
  CHECK(findings([](Plan& plan) { plan.pp = 41; }).empty());
  CHECK(findings([](Plan& plan) { plan.pp = 82; }).empty());
  PlanFinding const finding = only([](Plan& plan) { plan.pp = 83; });
  CHECK(finding.rule == "every chunk has a layer");
  CHECK(finding.nearest == Values{75, 76, 77, 78, 79, 80, 81, 82});
  Model small = llama();
  small.layers = 2;
  CHECK(only([](Plan& plan) { plan.pp = 5; }, small).nearest == Values{1, 2, 3, 4});
}

TEST_CASE("schedules and chunks") {
  CHECK(only([](Plan& plan) { plan.chunks = 2; }).text ==
        "2 chunks a stage need the interleaved schedule; 1f1b runs one; valid: 1");
  auto interleaved = [](Plan& plan) {
    plan.schedule = Schedule::interleaved;
    plan.chunks = 2;
    plan.p2p = P2p::overlapped;
  };
  CHECK(findings(interleaved).empty());
  CHECK(only([&](Plan& plan) {
          interleaved(plan);
          plan.chunks = 1;
        }).rule == "interleaved needs chunks");
  CHECK(only([&](Plan& plan) {
          interleaved(plan);
          plan.pp = 1;
        }).rule == "interleaved needs pp");
  // Without overlap transfers come in batches: on more than two stages, with groups of pp.
  auto batched = [&](Plan& plan) {
    interleaved(plan);
    plan.p2p = P2p::synchronous;
  };
  CHECK(findings(batched).empty());
  PlanFinding const two_stages = only([&](Plan& plan) {
    batched(plan);
    plan.pp = 2;
  });
  CHECK(two_stages.rule == "interleaved on two stages overlaps p2p");
  CHECK(two_stages.nearest == Values{4});
  PlanFinding const larger_groups = only([&](Plan& plan) {
    batched(plan);
    plan.micro_batch_group = 8;
  });
  CHECK(larger_groups.rule == "interleaved in larger groups overlaps p2p");
  CHECK(larger_groups.nearest == Values{4});
  // Chunks of unequal size would leave stages waiting in every round.
  PlanFinding const uneven = only([&](Plan& plan) {
    interleaved(plan);
    plan.chunks = 3;
  });
  CHECK(uneven.rule == "interleaved chunks are even");
  // 66 sequences over dp 2 are 33 micro-batches; groups of 4 ask for 64 or 72 sequences.
  PlanFinding const groups = only([&](Plan& plan) {
    interleaved(plan);
    plan.global_batch = 66;
  });
  CHECK(groups.rule == "interleaved: pp divides micro-batches");
  CHECK(groups.nearest == Values{64, 72});
}

TEST_CASE("the global batch is a multiple of micro-batch * dp") {
  PlanFinding const finding = only([](Plan& plan) { plan.global_batch = 127; });
  CHECK(finding.rule == "micro_batch * dp divides global_batch");
  CHECK(finding.text == "a global batch of 127 is not a multiple of micro-batch 1 * dp 2; valid: 126, 128");
  CHECK(only([](Plan& plan) { plan.global_batch = 1; }).nearest == Values{2}); // m is at least 1
}

TEST_CASE("sequences fit learned positions; rotary ones have no end") {
  Model model = llama();
  model.max_positions = 2048;
  CHECK(check(model, legal()).empty());
  model.positions = Positions::learned;
  PlanFinding const finding = only([](Plan&) {}, model);
  CHECK(finding.text == "sequences of 8192 tokens exceed the 2048 learned positions; valid: 2048");
}

// 80 blocks over 4 stages: 20 a chunk.
TEST_CASE("recompute_layers is -1, or 1 to the blocks of the largest chunk") {
  for (int n : {-1, 1, 20})
    CHECK(findings([&](Plan& plan) { plan.recompute_layers = n; }).empty());
  for (int n : {-2, 0, 21})
    CHECK(only([&](Plan& plan) { plan.recompute_layers = n; }).rule == "recompute_layers within a chunk");
}

TEST_CASE("ZeRO stages 0 to 3, groups that divide dp") {
  for (int stage : {4, -1})
    CHECK(only([&](Plan& plan) { plan.zero_stage = stage; }).nearest == Values{0, 1, 2, 3});
  auto zero = [](int stage, int group) {
    return [=](Plan& plan) {
      plan.tp = plan.pp = 1;
      plan.dp = 4;
      plan.global_batch = 128;
      plan.micro_batch = 1;
      plan.zero_stage = stage;
      plan.zero_group = group;
    };
  };
  for (int stage : {1, 2, 3})
    for (int group : {0, 1, 2, 4})
      CHECK(findings(zero(stage, group)).empty());
  CHECK(only(zero(3, 3)).nearest == Values{1, 2, 4});
  CHECK(only(zero(0, 2)).rule == "zero_group needs zero_stage");
  CHECK(only([](Plan& plan) { plan.sharding.prefetch = -1; }).rule == "prefetch is not negative");
}

// dp 4 has inner groups of 2 and 4.
TEST_CASE("ZeRO++: inner groups divide dp, hpZ and qwZ need stage 3, qgZ stage 2") {
  auto changed = [](int stage, auto change) {
    return [=](Plan& plan) {
      plan.tp = plan.pp = 1;
      plan.dp = 4;
      plan.global_batch = 128;
      plan.micro_batch = 1;
      plan.zero_stage = stage;
      change(plan.sharding);
    };
  };
  auto all = [](Sharding& s) {
    s.inner_group = 2;
    s.secondary_shard = true;
    s.weight_bits = 8;
    s.gradient_bits = 4;
  };
  CHECK(findings(changed(3, all)).empty());
  CHECK(findings(changed(1, [](Sharding& s) { s.inner_group = 2; })).empty());
  CHECK(findings(changed(2, [](Sharding& s) { s.gradient_bits = 8; })).empty());
  for (int group : {1, 3, -2})
    CHECK(only(changed(3, [=](Sharding& s) { s.inner_group = group; })).nearest == Values{2, 4});
  CHECK(only(changed(0, [](Sharding& s) { s.inner_group = 2; })).rule == "inner_group needs zero_stage");
  CHECK(only(changed(2, [](Sharding& s) { s.weight_bits = 8; })).text ==
        "weight_bits needs zero stage 3, not 2; valid: 3");
  CHECK(only(changed(1, [](Sharding& s) { s.gradient_bits = 4; })).nearest == Values{2, 3});
  CHECK(only(changed(3, [](Sharding& s) { s.secondary_shard = true; })).rule == "secondary_shard needs inner_group");
  CHECK(only(changed(3, [](Sharding& s) { s.weight_bits = 6; })).nearest == Values{0, 4, 8});
  CHECK(only(changed(3, [](Sharding& s) {
          s.gradient_bits = 4;
          s.reduce_once = true;
        })).rule == "gradient_bits without reduce_once");
  CHECK(only([&](Plan& plan) {
          changed(3, all)(plan);
          plan.zero_group = 2;
        }).rule == "inner_group without zero_group");
}

// 8192 tokens of 8192 on tp 8.
TEST_CASE("quantized sums over tp need tp, 4 or 8 bits") {
  CHECK(findings([](Plan& plan) { plan.tp_bits = 8; }).empty());
  CHECK(only([](Plan& plan) { plan.tp_bits = 5; }).nearest == Values{0, 4, 8});
  CHECK(only([](Plan& plan) {
          plan.tp = 1;
          plan.tp_bits = 8;
        }).rule == "tp_bits needs tp");
}

// tp 8 leaves one KV head with 8 queries on a rank: up to 8 ranks can share it with all_to_all; tp 2 leaves 4 with 8 each,
// for 4 * 8 ranks. 8192 = 2 * 4096.
TEST_CASE("context parallelism: chunks of equal length, fused attention, heads for all_to_all") {
  CHECK(findings([](Plan& plan) { plan.cp = 4096; }).empty());
  CHECK(only([](Plan& plan) { plan.cp = 3; }).text ==
        "a sequence of 8192 tokens cannot be cut into 2 * cp 3 chunks of equal length; valid: 8190, 8196");
  CHECK(findings([](Plan& plan) {
          plan.cp = 2;
          plan.attention = Attention::unfused;
        })[0]
            .rule == "context parallelism needs fused attention");
  auto exchange = [](int tp, int cp) {
    return findings([&](Plan& plan) {
      plan.tp = tp;
      plan.cp = cp;
      plan.cp_type = ContextParallel::all_to_all;
    });
  };
  CHECK(exchange(8, 2).empty());
  CHECK(exchange(8, 16)[0].rule == "all_to_all: tp * cp divides heads");
  CHECK(exchange(8, 16)[0].nearest == std::vector<std::int64_t>{1, 2, 4, 8});
  CHECK(exchange(2, 4).empty());
  CHECK(exchange(2, 8).empty());
  CHECK(exchange(2, 64)[0].nearest.back() == 32);
}

TEST_CASE("loss chunks cut the tokens of a micro-batch on a rank") {
  CHECK(findings([](Plan& plan) { plan.loss_chunks = 8; }).empty());
  CHECK(findings([](Plan& plan) {
          plan.cp = 2;
          plan.loss_chunks = 2048;
        }).empty());
  PlanFinding const finding = only([](Plan& plan) { plan.loss_chunks = 3; });
  CHECK(finding.rule == "loss_chunks divides tokens");
  CHECK(finding.nearest[0] == 1);
  CHECK(finding.nearest[1] == 2);
  CHECK(only([](Plan& plan) { plan.loss_chunks = 0; }).nearest == std::vector<std::int64_t>{1});
}

TEST_CASE("Domino: needs tp, whole rows, and a micro-batch that its slices divide") {
  auto slices = [](auto change) {
    return findings([&](Plan& plan) {
      plan.micro_batch = 4;
      plan.domino_slices = 2;
      change(plan);
    });
  };
  CHECK(slices([](Plan&) {}).empty());
  CHECK(slices([](Plan& plan) { plan.tp = 1; })[0].rule == "Domino needs tp");
  CHECK(slices([](Plan& plan) { plan.sequence_parallel = true; })[0].rule == "Domino without sequence parallelism");
  CHECK(slices([](Plan& plan) { plan.cp = 2; })[0].rule == "Domino without context parallelism");
  CHECK(slices([](Plan& plan) { plan.domino_slices = 3; })[0].nearest == std::vector<std::int64_t>{1, 2, 4});
}

TEST_CASE("Domino's released forms need slices and no pipeline; its columns divide the block's output") {
  auto rules = [](auto change) {
    std::vector<std::string> result;
    for (PlanFinding const& finding : findings([&](Plan& plan) {
           plan.micro_batch = 4;
           plan.domino_slices = 2;
           plan.domino = Domino::inter_layer;
           change(plan);
         }))
      result.push_back(finding.rule);
    return result;
  };
  using Rules = std::vector<std::string>;
  CHECK(rules([](Plan& plan) { plan.pp = 1; }).empty());
  CHECK(rules([](Plan& plan) { plan.pp = 2; }) == Rules{"released Domino without a pipeline"});
  CHECK(rules([](Plan& plan) { plan.pp = 1, plan.domino_slices = 1; }) == Rules{"domino needs domino_slices"});
  CHECK(rules([](Plan& plan) { plan.pp = 1, plan.domino_columns = 4; }).empty());
  CHECK(rules([](Plan& plan) { plan.pp = 1, plan.domino_columns = 3; }) == Rules{"domino_columns divides hidden"});
}

TEST_CASE("tp overlap needs sequence parallelism, and does not go with Domino") {
  auto overlapped = [](auto change) {
    return findings([&](Plan& plan) {
      plan.sequence_parallel = plan.tp_overlap = true;
      change(plan);
    });
  };
  CHECK(overlapped([](Plan&) {}).empty());
  CHECK(overlapped([](Plan& plan) { plan.sequence_parallel = false; })[0].rule ==
        "tp_overlap needs sequence parallelism");
  CHECK(overlapped([](Plan& plan) { plan.domino_columns = 2; })[0].rule == "Domino without sequence parallelism");
}

TEST_CASE("offload: shards of ZeRO 3, an optimizer beside them, sub-groups of drives, full recompute") {
  auto outside = [](auto change) {
    return findings([&](Plan& plan) {
      plan.zero_stage = 3;
      plan.offload.optimizer = plan.offload.parameters = MemoryTier::host;
      change(plan);
    });
  };
  CHECK(outside([](Plan&) {}).empty());
  CHECK(outside([](Plan& plan) { plan.zero_stage = 2; })[0].rule == "offload_parameters needs zero_stage 3");
  CHECK(outside([](Plan& plan) { plan.zero_stage = 2; })[0].nearest == std::vector<std::int64_t>{3});
  CHECK(outside([](Plan& plan) { plan.offload.optimizer = MemoryTier::device; })[0].rule ==
        "offload_parameters needs offload_optimizer");
  CHECK(outside([](Plan& plan) { plan.offload.ratio = 0.5; })[0].rule == "offload_parameters needs offload_optimizer");
  CHECK(outside([](Plan& plan) { plan.offload.sub_group = 8; })[0].rule == "sub_group needs offload_optimizer disk");
  CHECK(outside([](Plan& plan) {
          plan.offload.optimizer = MemoryTier::disk;
          plan.offload.tile = 8;
        })[0]
            .rule == "offload_tile needs offload_optimizer host");
  CHECK(outside([](Plan& plan) { plan.offload.checkpoints = true; })[0].rule ==
        "offload_checkpoints needs full recompute");
  CHECK(outside([](Plan& plan) { plan.offload.prefetch = -1; })[0].rule == "offload_prefetch is not negative");
}

TEST_CASE("dtypes are floats; buckets and clipping are not negative") {
  CHECK(only([](Plan& plan) { plan.parameter_dtype = DType::uint8; }).text ==
        "parameter_dtype uint8 cannot hold it; valid: bf16, fp16, fp32");
  CHECK(only([](Plan& plan) { plan.gradient_dtype = DType::int32; }).rule == "gradient_dtype is a float");
  CHECK(only([](Plan& plan) { plan.reduction_dtype = DType::int32; }).rule == "reduction_dtype is a float");
  CHECK(only([](Plan& plan) { plan.bucket_elements = -1; }).rule == "bucket_elements is not negative");
  CHECK(only([](Plan& plan) { plan.gradient_clip = -1; }).rule == "gradient_clip is not negative");
  CHECK(only([](Plan& plan) { plan.gradient_clip = std::numeric_limits<double>::quiet_NaN(); }).rule ==
        "gradient_clip is not negative");
}

// The nearest valid values, put in the place of what was wrong, break no rule of that name.
TEST_CASE("nearest values are valid") {
  for (int tp = 1; tp <= 70; ++tp)
    for (PlanFinding const& finding : findings([&](Plan& plan) { plan.tp = tp; }))
      for (std::int64_t const value : finding.nearest)
        CHECK(findings([&](Plan& plan) { plan.tp = static_cast<int>(value); }).empty());
  for (int pp = 1; pp <= 90; ++pp)
    for (PlanFinding const& finding : findings([&](Plan& plan) { plan.pp = pp; }))
      for (std::int64_t const value : finding.nearest)
        CHECK(findings([&](Plan& plan) { plan.pp = static_cast<int>(value); }).empty());
}

#include "tests/equivalence/plans.hpp"

#include "plan/plan_checker.hpp"
#include "tests/equivalence/models.hpp"

#include <algorithm>
#include <random>

namespace foreplan {
namespace {

template <class Value>
Value pick(std::mt19937& random, std::vector<Value> const& values) {
  return values[random() % values.size()];
}

std::vector<Plan> degrees() {
  std::vector<Plan> plans;
  for (int world : {2, 4, 8})
    for (int tp : {1, 2, 4, 8})
      for (int pp : {1, 2, 4, 8})
        for (int dp : {1, 2, 4, 8})
          if (tp * pp * dp == world) {
            Plan plan = one_device();
            plan.tp = tp;
            plan.pp = pp;
            plan.dp = dp;
            plan.micro_batch = 1;
            plans.push_back(plan);
          }
  return plans;
}

// For every plan, one plan with each of the changes that `vary` makes.
template <class Vary>
std::vector<Plan> times(std::vector<Plan> const& plans, Vary vary) {
  std::vector<Plan> result;
  for (Plan const& plan : plans)
    vary(plan, result);
  return result;
}

void schedules(Plan plan, std::vector<Plan>& result) {
  for (Schedule schedule : {Schedule::one_f_one_b, Schedule::gpipe}) {
    plan.schedule = schedule;
    result.push_back(plan);
  }
  for (Schedule schedule : {Schedule::zb_h1, Schedule::zb_h2}) {
    plan.schedule = schedule;
    result.push_back(plan);
  }
  plan.chunks = 2;
  for (Schedule schedule : {Schedule::zb_v, Schedule::v_half, Schedule::v_min, Schedule::dualpipe_v}) {
    plan.schedule = schedule;
    if (plan.pp * plan.chunks <= 8) // no deeper models than that
      result.push_back(plan);
  }
  plan.schedule = Schedule::interleaved;
  for (int chunks : {2, 3}) {
    plan.chunks = chunks;
    if (plan.pp * chunks <= 8)
      result.push_back(plan);
  }
}

void sequence_parallelism(Plan plan, std::vector<Plan>& result) {
  for (bool sequence_parallel : {false, true}) {
    plan.sequence_parallel = sequence_parallel;
    result.push_back(plan);
  }
}

void zero_stages(Plan plan, std::vector<Plan>& result) {
  for (int stage = 0; stage <= (plan.cp * plan.dp > 1 ? 1 : 0); ++stage) { // one rank has nothing to share
    plan.zero_stage = stage;
    result.push_back(plan);
  }
}

void all_zero_stages(Plan plan, std::vector<Plan>& result) {
  for (int stage = 0; stage <= (plan.dp > 1 ? 3 : 0); ++stage) {
    plan.zero_stage = stage;
    result.push_back(plan);
  }
}

void recomputes(Plan plan, std::vector<Plan>& result) {
  result.push_back(plan);
  for (Recompute recompute : {Recompute::selective, Recompute::full})
    for (int layers : {-1, 1}) {
      plan.recompute = recompute;
      plan.recompute_layers = layers;
      result.push_back(plan);
    }
}

void draw_rest(std::mt19937& random, EquivalenceCase& test) {
  Plan& plan = test.plan;
  Model& model = test.model;
  plan.micro_batch = pick<std::int64_t>(random, {1, 1, 2, 4});
  plan.bucket_elements = pick<std::int64_t>(random, {0, 500, 3000});
  plan.gradient_dtype = pick(random, std::vector{DType::fp32, DType::bf16});
  plan.reduction_dtype = pick(random, std::vector{DType::fp32, DType::bf16});
  plan.attention = pick(random, std::vector{Attention::fused, Attention::unfused});
  plan.p2p = pick(random, std::vector{P2p::synchronous, P2p::overlapped});
  plan.offload.optimizer = random() % 4 == 0 ? MemoryTier::host : MemoryTier::device;
  plan.offload.ratio = pick(random, std::vector{1.0, 0.4});
  plan.offload.tile = pick<std::int64_t>(random, {0, 200});
  plan.loss_chunks = pick<int>(random, {1, 1, 2, 4});
  model.tied_embeddings = random() % 2 == 0;
  model.dropout = random() % 2 == 0;
  // A block a chunk; one more, so that they do not divide; or two fewer: the chunks at the ends have none.
  int const chunks = plan.pp * plan.chunks;
  model.layers = std::max(2, chunks + pick<int>(random, {0, 1, -2}));
}

} // namespace

std::vector<std::string> settings_of(EquivalenceCase const& test) {
  Plan const& plan = test.plan;
  Model const& model = test.model;
  std::string const schedule = std::string(to_string(plan.schedule)) +
                               (plan.schedule == Schedule::interleaved ? " " + std::to_string(plan.chunks) : "");
  std::string const recompute = plan.recompute == Recompute::none        ? "recompute none"
                                : plan.recompute == Recompute::selective ? "recompute selective"
                                                                         : "recompute full";
  return {model.name,
          "tp " + std::to_string(plan.tp),
          "pp " + std::to_string(plan.pp),
          "dp " + std::to_string(plan.dp),
          "cp " + std::to_string(plan.cp) + (plan.cp > 1 ? " " + std::string(to_string(plan.cp_type)) : ""),
          schedule,
          plan.sequence_parallel ? "sp" : "no sp",
          "zero " + std::to_string(plan.zero_stage),
          recompute + (plan.recompute_layers < 0 ? "" : " of the first"),
          "micro-batch " + std::to_string(plan.micro_batch),
          "buckets of " + std::to_string(plan.bucket_elements),
          plan.gradient_dtype == DType::fp32 ? "fp32 gradients" : "bf16 gradients",
          plan.reduction_dtype == DType::fp32 ? "fp32 reduction" : "bf16 reduction",
          plan.attention == Attention::fused ? "fused" : "unfused",
          plan.p2p == P2p::synchronous ? "synchronous p2p" : "overlapped p2p",
          plan.offload.optimizer == MemoryTier::device ? "states on the device"
                                                       : "states on the host " + std::to_string(plan.offload.ratio) +
                                                             ", tiles of " + std::to_string(plan.offload.tile),
          "loss in " + std::to_string(plan.loss_chunks),
          model.tied_embeddings ? "tied" : "untied",
          model.dropout ? "dropout" : "no dropout"};
}

std::string describe(EquivalenceCase const& test) {
  std::string text = std::to_string(test.model.layers) + " layers";
  for (std::string const& setting : settings_of(test))
    text += ", " + setting;
  Sharding const& s = test.plan.sharding;
  if (s != Sharding{} || test.plan.zero_group > 0)
    text += ", zero group " + std::to_string(test.plan.zero_group) + ", reshard " + std::string(to_string(s.reshard)) +
            (s.reduce_once ? ", reduced once" : "") + (s.reduce_replicas_once ? ", replicas once" : "") +
            ", prefetch " + std::to_string(s.prefetch) + " or " + std::to_string(s.prefetch_elements) + ", reuse " +
            std::to_string(s.reuse_distance) + ", live " + std::to_string(s.max_live) + ", persistent " +
            std::to_string(s.persistence_threshold) + ", inner " + std::to_string(s.inner_group) +
            (s.secondary_shard ? ", hpZ" : "") + ", bits " + std::to_string(s.weight_bits) + " " +
            std::to_string(s.gradient_bits);
  if (test.plan.tp_bits > 0)
    text += ", bits of sums over tp " + std::to_string(test.plan.tp_bits);
  Offload const& o = test.plan.offload;
  if (o.optimizer != MemoryTier::device || o.checkpoints)
    text += ", optimizer on " + std::string(to_string(o.optimizer)) + " in " + std::to_string(o.sub_group) +
            ", parameters on " + std::string(to_string(o.parameters)) + ", " + std::to_string(o.prefetch) + " ahead" +
            (o.checkpoints ? ", checkpoints on the host" : "");
  if (test.plan.cp > 1)
    text += ", cp " + std::to_string(test.plan.cp) + " " + std::string(to_string(test.plan.cp_type));
  if (test.plan.domino_slices > 1 || test.plan.domino_columns > 1)
    text += ", Domino " + std::to_string(test.plan.domino_slices) + " x " + std::to_string(test.plan.domino_columns) +
            " " + std::string(to_string(test.plan.domino));
  if (test.plan.tp_overlap)
    text += ", tp overlapped";
  return text;
}

namespace {

// Legal cases of the plans on both models, `draws` of each.
std::vector<EquivalenceCase> drawn_cases(std::vector<Plan> const& plans, int draws) {
  constexpr int most_tries = 16; // for one legal draw; a plan that finds none is illegal whatever is drawn
  std::mt19937 random(2);
  std::vector<EquivalenceCase> cases;
  for (Model const& model : {small_gpt(), small_llama()})
    for (Plan const& plan : plans) {
      std::vector<std::string> drawn;
      for (int tries = 0; static_cast<int>(drawn.size()) < draws && tries < most_tries * draws; ++tries) {
        EquivalenceCase test{model, plan};
        draw_rest(random, test);
        std::string const text = describe(test);
        if (!check(test.model, test.plan).empty() || std::find(drawn.begin(), drawn.end(), text) != drawn.end())
          continue;
        drawn.push_back(text);
        cases.push_back(test);
      }
    }
  return cases;
}

std::vector<Plan> context_parallel_degrees() {
  struct Degrees {
    int tp, cp, pp, dp;
  };
  std::vector<Plan> plans;
  for (Degrees const d : {Degrees{1, 2, 1, 1},
                          {2, 2, 1, 1},
                          {1, 4, 1, 1},
                          {1, 2, 2, 1},
                          {1, 2, 1, 2},
                          {2, 2, 2, 1},
                          {2, 2, 1, 2},
                          {1, 2, 2, 2},
                          {2, 4, 1, 1}})
    for (ContextParallel type : {ContextParallel::all_gather, ContextParallel::all_to_all, ContextParallel::ring}) {
      Plan plan = one_device();
      plan.tp = d.tp;
      plan.cp = d.cp;
      plan.pp = d.pp;
      plan.dp = d.dp;
      plan.cp_type = type;
      plan.micro_batch = 1;
      plans.push_back(plan);
    }
  return plans;
}

} // namespace

std::vector<EquivalenceCase> context_parallel_cases(int draws) {
  return drawn_cases(times(times(times(context_parallel_degrees(), sequence_parallelism), zero_stages), recomputes),
                     draws);
}

std::vector<EquivalenceCase> domino_cases(int draws) {
  struct Cut {
    int slices, columns;
    Domino form;
  };
  std::vector<Plan> plans;
  for (Cut const& cut : {Cut{2, 1, Domino::paper}, Cut{4, 1, Domino::paper}, Cut{2, 1, Domino::inter_layer},
                         Cut{4, 1, Domino::inter_layer}, Cut{2, 1, Domino::intra_layer}, Cut{4, 1, Domino::intra_layer},
                         Cut{1, 2, Domino::paper}, Cut{2, 2, Domino::paper}, Cut{2, 4, Domino::intra_layer}})
    for (Plan plan : degrees()) {
      if (plan.tp == 1)
        continue;
      plan.domino_slices = cut.slices;
      plan.domino_columns = cut.columns;
      plan.domino = cut.form;
      plans.push_back(plan);
    }
  return drawn_cases(times(times(times(plans, schedules), all_zero_stages), recomputes), draws);
}

std::vector<EquivalenceCase> tp_overlap_cases(int draws) {
  std::vector<Plan> plans;
  for (Plan plan : degrees()) {
    if (plan.tp == 1)
      continue;
    plan.sequence_parallel = true;
    plan.tp_overlap = true;
    plans.push_back(plan);
  }
  return drawn_cases(times(times(times(plans, schedules), all_zero_stages), recomputes), draws);
}

std::vector<EquivalenceCase> equivalence_cases(int draws) {
  return drawn_cases(times(times(times(times(degrees(), schedules), sequence_parallelism), zero_stages), recomputes),
                     draws);
}

std::vector<EquivalenceCase> quantized_cases() {
  struct Choice {
    int tp, dp, inner_group;
    bool secondary_shard;
    int weight_bits, gradient_bits, zero_stage, tp_bits = 0;
    bool sequence_parallel = false;
  };
  std::vector<EquivalenceCase> cases;
  for (Model const& model : {small_gpt(2), small_llama(2)})
    for (Choice const c : {Choice{1, 2, 0, false, 8, 0, 3},
                           {1, 2, 2, true, 8, 4, 3},
                           {1, 4, 0, false, 0, 4, 2},
                           {1, 4, 2, false, 0, 8, 2},
                           {1, 4, 2, true, 8, 0, 3},
                           {1, 4, 2, false, 4, 4, 3},
                           {1, 4, 2, true, 8, 4, 3},
                           {2, 2, 2, true, 8, 4, 3},
                           {2, 1, 0, false, 0, 0, 0, 8},
                           {4, 1, 0, false, 0, 0, 0, 8, true},
                           {2, 2, 0, false, 0, 0, 1, 8}})
      for (std::int64_t micro_batch : {1, 2}) {
        Plan plan = one_device();
        plan.tp = c.tp;
        plan.dp = c.dp;
        plan.zero_stage = c.zero_stage;
        plan.tp_bits = c.tp_bits;
        plan.sequence_parallel = c.sequence_parallel;
        plan.micro_batch = micro_batch;
        plan.recompute = micro_batch == 1 ? Recompute::none : Recompute::full;
        plan.sharding.inner_group = c.inner_group;
        plan.sharding.secondary_shard = c.secondary_shard;
        plan.sharding.weight_bits = c.weight_bits;
        // A sum of codes of 4 bits can lie halfway between two codes, where the last bit of a product decides: runs
        // that are to agree exactly take 8 where sums are quantized again.
        bool const two_hops = c.inner_group > 0 && c.inner_group < c.dp;
        plan.sharding.gradient_bits = two_hops && c.gradient_bits > 0 ? 8 : c.gradient_bits;
        cases.push_back({model, plan});
      }
  return cases;
}

// Everything that ZeRO stages 1 to 3 do with groups, units, gathers and reductions, drawn at random.
std::vector<EquivalenceCase> sharding_cases(int count) {
  std::mt19937 random(3);
  std::vector<Plan> const plans = times(times(degrees(), schedules), sequence_parallelism);
  std::vector<EquivalenceCase> cases;
  while (static_cast<int>(cases.size()) < count) {
    EquivalenceCase test{pick(random, std::vector{small_gpt(), small_llama()}), pick(random, plans)};
    draw_rest(random, test);
    Plan& plan = test.plan;
    plan.zero_stage = pick(random, std::vector{1, 2, 3, 3});
    plan.zero_group = pick(random, std::vector{0, 0, 2, 4});
    plan.cp = pick(random, std::vector{1, 1, 1, 2});
    plan.recompute = pick(random, std::vector{Recompute::none, Recompute::selective, Recompute::full});
    Sharding& sharding = plan.sharding;
    if (plan.zero_group == 0 && random() % 2 == 0) {
      sharding.inner_group = pick(random, std::vector{2, 4});
      sharding.secondary_shard = plan.zero_stage == 3 && random() % 4 > 0;
    }
    sharding.reshard = pick(
        random, std::vector{Reshard::after_use, Reshard::after_use, Reshard::after_backward, Reshard::after_step});
    sharding.reduce_once = random() % 4 == 0;
    sharding.reduce_replicas_once = random() % 2 == 0;
    sharding.prefetch = pick(random, std::vector{0, 1, 1, 2, 5});
    sharding.prefetch_elements = pick<std::int64_t>(random, {0, 0, 3000});
    sharding.reuse_distance = pick<std::int64_t>(random, {0, 0, 3000, 10000});
    sharding.max_live = pick<std::int64_t>(random, {0, 0, 1, 3000});
    sharding.persistence_threshold = pick<std::int64_t>(random, {0, 0, 20, 300});
    if (plan.dp > 1 && plan.world_size() <= 8 && check(test.model, plan).empty())
      cases.push_back(test);
  }
  return cases;
}

namespace {

void draw_offload(std::mt19937& random, Offload& offload) {
  std::vector const tiers{MemoryTier::device, MemoryTier::host, MemoryTier::disk};
  offload.optimizer = pick(random, tiers);
  offload.parameters = pick(random, tiers);
  offload.tile = pick<std::int64_t>(random, {0, 200});
  offload.sub_group = pick<std::int64_t>(random, {0, 150, 700});
  offload.prefetch = pick(random, std::vector{0, 1, 1, 3});
  offload.checkpoints = random() % 2 == 0;
}

} // namespace

std::vector<EquivalenceCase> offload_cases(int count) {
  constexpr int tries = 20;
  std::mt19937 random(4);
  std::vector<EquivalenceCase> cases;
  for (EquivalenceCase test : sharding_cases(count)) {
    for (int i = 0; i < tries; ++i) {
      draw_offload(random, test.plan.offload);
      if (check(test.model, test.plan).empty())
        break;
    }
    if (check(test.model, test.plan).empty())
      cases.push_back(std::move(test));
  }
  return cases;
}

} // namespace foreplan

#include "planner/search_space.hpp"

#include "plan/plan_checker.hpp"

#include <algorithm>

namespace foreplan {

namespace {

// One chunk a stage with 1F1B or ZB-H1, two in the shape of a V, or more interleaved; transfers overlapped but with 1F1B. Of
// the zero-bubble schedules those that need no more memory than 1F1B's first stage.
std::vector<Plan> with_schedules(Model const& model, Plan plan, Allowed allowed) {
  std::vector<Plan> plans{plan};
  if (plan.pp == 1)
    return plans;
  plan.p2p = P2p::overlapped;
  for (Schedule schedule : {Schedule::zb_h1, Schedule::zb_v, Schedule::v_half}) {
    plan.schedule = schedule;
    plan.chunks = is_v_shaped(schedule) ? 2 : 1;
    if (allowed.split_schedules && plan.chunks * plan.pp <= model.layers + 2)
      plans.push_back(plan);
  }
  plan.schedule = Schedule::interleaved;
  for (plan.chunks = 2; plan.chunks * plan.pp <= model.layers + 2; ++plan.chunks)
    plans.push_back(plan);
  return plans;
}

std::vector<Plan> with_switches(Plan plan) {
  std::vector<Plan> plans;
  for (bool sequence_parallel : {false, true}) {
    if (sequence_parallel && plan.tp == 1)
      continue;
    for (int zero_stage : {0, 1, 2, 3}) {
      // Without ranks to share among there is nothing to share out. Under a pipeline stages 2 and 3 would repeat their
      // transfers for every micro-batch (DeepSpeed's refuses them): they are not searched.
      if ((zero_stage >= 1 && plan.cp * plan.dp == 1) || (zero_stage >= 2 && plan.pp > 1))
        continue;
      for (Recompute recompute : {Recompute::none, Recompute::full}) {
        plan.sequence_parallel = sequence_parallel;
        plan.zero_stage = zero_stage;
        plan.recompute = recompute;
        plans.push_back(plan);
      }
    }
  }
  return plans;
}

// Context parallelism pays where a rank would otherwise hold long sequences: as Llama 3 was trained (arXiv 2407.21783, table
// 4: 131,072 tokens on cp 16), a rank keeps 8192 tokens of a sequence or more.
constexpr std::int64_t fewest_tokens_of_a_sequence = 8192;

// Context-parallel degrees (powers of two) and types on `ranks` that share out data, dp what is left.
std::vector<Plan> with_context_parallelism(Plan plan, int ranks) {
  std::vector<Plan> plans;
  for (plan.cp = 1; ranks % plan.cp == 0; plan.cp *= 2) {
    if (plan.cp > 1 && plan.sequence_length / plan.cp < fewest_tokens_of_a_sequence)
      break;
    plan.dp = ranks / plan.cp;
    for (ContextParallel type : {ContextParallel::all_gather, ContextParallel::all_to_all, ContextParallel::ring}) {
      plan.cp_type = type;
      plans.push_back(plan);
      if (plan.cp == 1)
        break;
    }
  }
  return plans;
}

// What not every trainer has is searched where a constraint names it: Domino (two slices, as released) and products that
// overlap tensor-parallel communication.
std::vector<Plan> with_overlap(Plan const& plan, std::vector<Constraint> const& constraints) {
  auto const named = [&](std::string_view prefix) {
    return std::any_of(constraints.begin(), constraints.end(),
                       [&](Constraint const& constraint) { return constraint.name.starts_with(prefix); });
  };
  std::vector<Plan> plans{plan};
  if (named("tp-overlap") && plan.sequence_parallel) {
    plans.push_back(plan);
    plans.back().tp_overlap = true;
  }
  if (named("domino") && plan.tp > 1 && !plan.sequence_parallel)
    for (Domino form : {Domino::paper, Domino::inter_layer, Domino::intra_layer}) {
      plans.push_back(plan);
      plans.back().domino_slices = 2;
      plans.back().domino = form;
    }
  return plans;
}

// What lives outside the device. Parameters go no further down than the optimizer's states, of which there are more.
std::vector<Plan> with_offload(Plan plan, Allowed allowed) {
  std::vector<Plan> plans{plan};
  if (!allowed.offload)
    return plans;
  for (MemoryTier optimizer : {MemoryTier::device, MemoryTier::host, MemoryTier::disk})
    for (MemoryTier parameters : {MemoryTier::device, MemoryTier::host, MemoryTier::disk})
      for (bool checkpoints : {false, true}) {
        plan.offload = {.optimizer = optimizer, .parameters = parameters, .checkpoints = checkpoints};
        bool const is_allowed = optimizer != MemoryTier::disk || allowed.drives;
        bool const has_shards = plan.zero_stage == 3 || parameters == MemoryTier::device;
        bool const has_checkpoints = plan.recompute == Recompute::full || !checkpoints;
        if (is_allowed && has_shards && has_checkpoints && parameters <= optimizer && plan.offload != Offload{})
          plans.push_back(plan);
      }
  return plans;
}

// ZeRO++ where ZeRO-3 spans nodes: hpZ alone, which is exact, and with qwZ and qgZ.
std::vector<Plan> with_zero_pp(Plan plan, int devices_per_node, Allowed allowed) {
  std::vector<Plan> plans{plan};
  int const inner = devices_per_node / (plan.tp * plan.cp); // data-parallel ranks of a node
  bool const spans_nodes = inner > 1 && plan.dp > inner && plan.dp % inner == 0;
  if (!allowed.quantized || plan.zero_stage != 3 || !spans_nodes)
    return plans;
  plan.sharding.inner_group = inner;
  plan.sharding.secondary_shard = true;
  plans.push_back(plan);
  plan.sharding.weight_bits = 8;
  plan.sharding.gradient_bits = 4;
  plans.push_back(plan);
  return plans;
}

void reject(SearchSpace& space, std::string const& rule, std::string const& example) {
  auto const known = std::find_if(space.rejected.begin(), space.rejected.end(),
                                  [&](Rejection const& rejection) { return rejection.rule == rule; });
  if (known == space.rejected.end())
    space.rejected.push_back({rule, 1, example});
  else
    ++known->count;
}

// To the plans, or to the rejected.
void add(SearchSpace& space, Model const& model, Plan const& plan, std::vector<Constraint> const& constraints) {
  for (Constraint const& constraint : constraints)
    if (!allows(constraint, plan))
      return reject(space, constraint.text, describe(plan));
  std::vector<PlanFinding> const findings = check(model, plan);
  if (findings.empty())
    space.plans.push_back(plan);
  else
    reject(space, findings[0].rule, findings[0].text);
}

} // namespace

SearchSpace search_space(Model const& model, int devices, int devices_per_node, std::int64_t sequence_length,
                         std::int64_t global_batch, std::vector<Constraint> const& constraints,
                         std::optional<Framework> const& framework, Allowed allowed) {
  SearchSpace space;
  Plan plan;
  plan.sequence_length = sequence_length;
  plan.global_batch = global_batch;
  plan.bucket_elements = 100'000'000;
  for (plan.tp = 1; plan.tp <= devices_per_node && plan.tp <= devices; ++plan.tp) {
    for (plan.pp = 1; plan.tp * plan.pp <= devices && plan.pp <= model.layers + 2; ++plan.pp) {
      if (devices % (plan.tp * plan.pp) != 0)
        continue;
      for (Plan shared : with_context_parallelism(plan, devices / (plan.tp * plan.pp))) {
        for (; shared.micro_batch * shared.dp <= global_batch; shared.micro_batch *= 2) {
          for (Plan const& scheduled : with_schedules(model, shared, allowed)) {
            for (Plan const& switched : with_switches(scheduled))
              for (Plan const& overlapped : with_overlap(switched, constraints))
                for (Plan const& offloaded : with_offload(overlapped, allowed))
                  for (Plan const& candidate : with_zero_pp(offloaded, devices_per_node, allowed)) {
                    ++space.enumerated;
                    add(space, model, framework ? as_run_by(*framework, candidate) : candidate, constraints);
                  }
          }
        }
      }
    }
  }
  std::stable_sort(space.rejected.begin(), space.rejected.end(),
                   [](Rejection const& a, Rejection const& b) { return a.count > b.count; });
  return space;
}

} // namespace foreplan

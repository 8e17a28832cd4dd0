// What compile() makes of a plan: layer programs, slots, buckets, instances.
#include "program/compile.hpp"
#include "program/instances.hpp"
#include "tests/catch.hpp"
#include "tests/equivalence/models.hpp"

#include <algorithm>
#include <set>

using namespace foreplan;

namespace {

Plan plan_of(int tp, int pp, int dp) {
  Plan plan;
  plan.tp = tp;
  plan.pp = pp;
  plan.dp = dp;
  plan.sequence_length = 8;
  plan.global_batch = 4 * dp;
  return plan;
}

// "F0 F1 B0 ..." of a stage, pieces of a cut slot as one.
std::string slots_of(StageProgram const& stage) {
  std::string text;
  std::string last;
  for (Element const& element : stage.elements)
    if (Slot const* slot = std::get_if<Slot>(&element)) {
      std::string const name = (slot->kind == SlotKind::forward ? "F" : "B") +
                               (stage.chunks.size() > 1 ? std::to_string(slot->chunk.value()) + "." : std::string()) +
                               std::to_string(slot->micro_batch.value());
      if (name != last)
        text += (text.empty() ? "" : " ") + name;
      last = name;
    }
  return text;
}

std::int64_t parameters_of(Program const& program) {
  std::int64_t count = 0;
  for (StageProgram const& stage : program.stages)
    for (StageLayer const& layer : stage.layers)
      for (std::size_t p = 0; p < layer.homes.size(); ++p)
        count += program.layer_programs[static_cast<std::size_t>(layer.program)].parameters[p].elements();
  return count;
}

} // namespace

TEST_CASE("schedules, slot by slot") {
  Plan plan = plan_of(1, 2, 1);
  Model const model = small_llama(4);
  plan.schedule = Schedule::gpipe;
  CHECK(slots_of(compile(model, plan).stages[0]) == "F0 F1 F2 F3 B0 B1 B2 B3");
  plan.schedule = Schedule::one_f_one_b; // stage 0 warms up with one forward
  CHECK(slots_of(compile(model, plan).stages[0]) == "F0 F1 B0 F2 B1 F3 B2 B3");
  CHECK(slots_of(compile(model, plan).stages[1]) == "F0 B0 F1 B1 F2 B2 F3 B3");
  plan.schedule = Schedule::interleaved; // warm-up of stage 1: 2 * 0 + (2 - 1) * 2 forwards
  plan.chunks = 2;
  plan.p2p = P2p::overlapped;
  CHECK(slots_of(compile(model, plan).stages[1]) ==
        "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3");
}

TEST_CASE("stages hold every parameter once, and ranks of a tp group their part") {
  Model const model = small_llama(4);
  CHECK(parameters_of(compile(model, plan_of(1, 1, 1))) == parameter_count(model));
  CHECK(parameters_of(compile(model, plan_of(1, 4, 1))) == parameter_count(model));
  // Norm weights are whole on every rank: 2 a block and the final one, of hidden 16.
  std::int64_t const norms = (2 * 4 + 1) * 16;
  CHECK(parameters_of(compile(model, plan_of(2, 1, 1))) == (parameter_count(model) - norms) / 2 + norms);
}

TEST_CASE("buckets: padded to a multiple of dp, filled by layers from the last, closed when full") {
  Plan plan = plan_of(1, 1, 3);
  plan.bucket_elements = 2000;
  Program const program = compile(small_llama(4), plan);
  StageProgram const& stage = program.stages[0];
  CHECK(stage.buckets.size() > 2);
  int next = 6; // head of 4 blocks: layer 5
  for (Bucket const& bucket : stage.buckets) {
    CHECK(bucket.elements % 3 == 0);
    CHECK(bucket.highest_layer == next - 1);
    next = bucket.lowest_layer;
    CHECK(stage.buffers[bucket.parameters.index()].elements == bucket.elements);
  }
  CHECK(next == 0);
  plan.bucket_elements = 0;
  CHECK(compile(small_llama(4), plan).stages[0].buckets.size() == 1);
}

TEST_CASE("parameters do not overlap in their flat buffers") {
  for (Plan const& plan : {plan_of(1, 1, 1), plan_of(2, 2, 2)}) {
    Program const program = compile(small_gpt(4), plan);
    for (StageProgram const& stage : program.stages) {
      std::set<std::pair<BufferId, std::int64_t>> taken;
      std::size_t elements = 0;
      for (StageLayer const& layer : stage.layers)
        for (std::size_t p = 0; p < layer.homes.size(); ++p) {
          ParameterHome const& home = layer.homes[p];
          std::int64_t const size =
              program.layer_programs[static_cast<std::size_t>(layer.program)].parameters[p].elements();
          CHECK(home.offset + size <= stage.buffers[home.parameters.index()].elements);
          for (std::int64_t i = 0; i < size; ++i)
            taken.emplace(home.parameters, home.offset + i);
          elements += static_cast<std::size_t>(size);
        }
      CHECK(taken.size() == elements);
    }
  }
}

// One stage holds both ends of a tied matrix: one home, one gradient. Two stages: a copy and a bucket at each end.
TEST_CASE("tied embeddings") {
  Model model = small_gpt(2);
  model.tied_embeddings = true;
  Program const one = compile(model, plan_of(1, 1, 1));
  ParameterHome const table = one.stages[0].layers[0].homes[0];
  auto const& homes = one.stages[0].layers[3].homes;
  CHECK(std::any_of(homes.begin(), homes.end(), [&](ParameterHome const& home) {
    return home.parameters == table.parameters && home.offset == table.offset;
  }));
  Program const two = compile(model, plan_of(1, 2, 1));
  auto sums_copies = [](Element const& element) {
    Op const* op = std::get_if<Op>(&element);
    return op != nullptr && op->kind == OpKind::all_reduce && op->group == Group{Axis::pp, true};
  };
  for (StageProgram const& stage : two.stages)
    CHECK(std::count_if(stage.elements.begin(), stage.elements.end(), sums_copies) == 1);
}

TEST_CASE("instances: layers of a slot forward from the first, backward from the last; waits name earlier ones") {
  Program const program = compile(small_llama(2), plan_of(2, 1, 1));
  std::vector<Instance> const instances = instances_of(program, program.stages[0]);
  int layer = 0;
  for (std::size_t i = 0; i < instances.size(); ++i) {
    Instance const& instance = instances[i];
    for (std::int32_t wait : instance.waits)
      CHECK(static_cast<std::size_t>(wait) < i);
    if (instance.layer < 0 || instance.micro_batch != MicroBatch(0))
      continue;
    CHECK(std::abs(instance.layer - layer) <= 1); // 0 1 2 3 3 2 1 0
    layer = instance.layer;
  }
  CHECK(layer == 0);
}

TEST_CASE("passes have names, and are left out by name") {
  std::vector<std::string> const names = compile_passes();
  CHECK(names == std::vector<std::string>{"tensor_parallel", "sequence_parallel", "context_parallel", "domino",
                                          "split_columns", "insert_collectives", "overlap_gathers",
                                          "separate_accumulation", "recompute", "split_backward", "synchronize_layer",
                                          "schedule", "flat_parameters", "zero", "zero_2", "zero_3", "optimizer",
                                          "offload", "synchronize"});
  Plan plan = plan_of(1, 1, 1);
  Plan recomputed = plan;
  recomputed.recompute = Recompute::full;
  auto count = [](Program const& program) { return instances_of(program, program.stages[0]).size(); };
  CHECK(count(compile(small_llama(), recomputed, {"recompute"})) == count(compile(small_llama(), plan)));
  CHECK(count(compile(small_llama(), recomputed)) > count(compile(small_llama(), plan)));
}

// The loss is accumulated where the head is: no other stage clears it.
TEST_CASE("only the last stage has a loss") {
  Program const program = compile(small_llama(4), plan_of(1, 2, 1));
  auto clears_loss = [](Element const& element) {
    Op const* op = std::get_if<Op>(&element);
    return op != nullptr && op->name == "clear loss";
  };
  for (int stage : {0, 1}) {
    auto const& elements = program.stages[static_cast<std::size_t>(stage)].elements;
    CHECK(std::count_if(elements.begin(), elements.end(), clears_loss) == stage);
  }
}

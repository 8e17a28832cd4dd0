#include "program/compile.hpp"

#include "program/layer_passes/layer_passes.hpp"
#include "program/layers.hpp"
#include "program/step_passes/step_passes.hpp"
#include "program/synchronize.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace foreplan {

namespace {

struct LayerPass {
  char const* name;
  void (*run)(LayerProgram& layer, Plan const& plan, Recompute recompute_this);
};

// In this order: what is cut, then the collectives that the cuts ask for, then what is run again (collectives included),
// then what is put off.
constexpr LayerPass layer_passes[] = {
    {"tensor_parallel", [](LayerProgram& layer, Plan const& plan, Recompute) { tensor_parallel(layer, plan); }},
    {"sequence_parallel", [](LayerProgram& layer, Plan const& plan, Recompute) { sequence_parallel(layer, plan); }},
    {"context_parallel", [](LayerProgram& layer, Plan const& plan, Recompute) { context_parallel(layer, plan); }},
    {"domino", [](LayerProgram& layer, Plan const& plan, Recompute) { domino(layer, plan); }},
    {"split_columns", [](LayerProgram& layer, Plan const& plan, Recompute) { split_columns(layer, plan); }},
    {"insert_collectives", [](LayerProgram& layer, Plan const& plan, Recompute) { insert_collectives(layer, plan); }},
    {"overlap_gathers", [](LayerProgram& layer, Plan const& plan, Recompute) { overlap_gathers(layer, plan); }},
    {"quantize_reductions", [](LayerProgram& layer, Plan const& plan, Recompute) { quantize_reductions(layer, plan); }},
    {"loss_chunks", [](LayerProgram& layer, Plan const& plan, Recompute) { loss_chunks(layer, plan); }},
    {"separate_accumulation",
     [](LayerProgram& layer, Plan const& plan, Recompute) { separate_accumulation(layer, plan); }},
    {"recompute", [](LayerProgram& layer, Plan const& plan, Recompute what) { recompute(layer, plan, what); }},
    {"split_backward", [](LayerProgram& layer, Plan const& plan, Recompute) { split_backward(layer, plan); }},
    {"synchronize_layer", [](LayerProgram& layer, Plan const&, Recompute) { synchronize(layer); }},
};

struct StepPass {
  char const* name;
  void (*run)(Program const& program, StageProgram& stage);
};

constexpr StepPass step_passes[] = {
    {"flat_parameters", flat_parameters}, // from here on every parameter has its place in a bucket
    {"zero", zero},
    {"zero_2", zero_2}, // cuts backwards where buckets are complete
    {"zero_3", zero_3}, // cuts at every layer, so last
    {"optimizer", optimizer},
    // Of what the passes before use on the device: gathers, sums, the update, recomputed layers.
    {"offload_parameters", offload_parameters},
    {"offload_gradients", offload_gradients},
    {"offload", offload}, // the optimizer, with what of it lives elsewhere already
    {"offload_checkpoints", offload_checkpoints},
    {"synchronize", synchronize}, // from here on no op is added or moved
};

// The first step pass: it needs the whole pipeline's schedule.
struct SchedulePass {
  static constexpr char const* name = "schedule";
  static void run(Program const& program, StageProgram& stage, std::vector<PlacedWork> const& order) {
    pipeline(program, stage, order);
  }
};

// Runs passes: all but those skipped, each timed.
class PassRunner {
public:
  PassRunner(std::vector<std::string> skip, std::vector<PassTime>* times) : skip_(std::move(skip)), times_(times) {
    if (times_ != nullptr)
      for (std::string& name : compile_passes())
        times_->push_back({std::move(name), Seconds(0)});
  }

  template <class Pass, class... Arguments>
  void run(Pass const& pass, Arguments&&... arguments) const {
    if (std::find(skip_.begin(), skip_.end(), pass.name) != skip_.end())
      return;
    auto const begin = std::chrono::steady_clock::now();
    pass.run(arguments...);
    if (times_ == nullptr)
      return;
    Seconds const taken(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    std::find_if(times_->begin(), times_->end(), [&](PassTime const& time) {
      return time.name == pass.name;
    })->time += taken;
  }

private:
  std::vector<std::string> skip_;
  std::vector<PassTime>* times_;
};

LayerProgram layer_program(LayerProgram layer, Plan const& plan, Recompute recompute_this, PassRunner const& runner) {
  for (LayerPass const& pass : layer_passes)
    runner.run(pass, layer, plan, recompute_this);
  return layer;
}

// Layer programs of a plan, by position.
enum : int { embedding_program, plain_block_program, recomputed_block_program, head_program };

int program_of(Program const& program, LayerRange chunk, int layer) {
  if (layer == 0)
    return embedding_program;
  if (layer == program.model.layers + 1)
    return head_program;
  return is_recomputed(program, chunk, layer) ? recomputed_block_program : plain_block_program;
}

StageProgram empty_stage(Program const& program, Stage stage) {
  StageProgram result;
  result.stage = stage;
  result.layers.resize(static_cast<std::size_t>(program.model.layers) + 2);
  result.buffers.push_back({"loss", Category::scratch, DType::fp32, 1, true}); // loss_buffer
  for (int c = 0; c < program.plan.chunks; ++c) {
    LayerRange const range = layers_of(program.model, program.plan, stage, Chunk(c));
    result.chunks.push_back(range);
    for (int layer = range.first; layer < range.last; ++layer)
      result.layers[static_cast<std::size_t>(layer)].program = program_of(program, range, layer);
  }
  return result;
}

} // namespace

namespace {

Program compile_with(Model const& model, Plan const& plan, std::vector<int> const& stages, PassRunner const& runner) {
  Program program;
  program.model = model;
  program.plan = plan;
  program.layer_programs = {
      layer_program(embedding_layer(model, plan), plan, Recompute::none, runner),
      layer_program(block_layer(model, plan), plan, Recompute::none, runner),
      layer_program(block_layer(model, plan), plan, plan.recompute, runner),
      layer_program(head_layer(model, plan), plan, Recompute::none, runner),
  };
  std::vector<std::vector<PlacedWork>> const orders = place_transfers(plan, schedule(plan));
  for (int s : stages) {
    StageProgram stage = empty_stage(program, Stage(s));
    runner.run(SchedulePass{}, program, stage, orders[static_cast<std::size_t>(s)]);
    for (StepPass const& pass : step_passes)
      runner.run(pass, program, stage);
    program.stages.push_back(std::move(stage));
  }
  return program;
}

} // namespace

Program compile(Model const& model, Plan const& plan, std::vector<std::string> const& skip,
                std::vector<PassTime>* times) {
  std::vector<int> stages(static_cast<std::size_t>(plan.pp));
  std::iota(stages.begin(), stages.end(), 0);
  return compile_with(model, plan, stages, PassRunner(skip, times));
}

Program compile_stages(Model const& model, Plan const& plan, std::vector<int> const& stages) {
  return compile_with(model, plan, stages, PassRunner({}, nullptr));
}

std::vector<std::string> compile_passes() {
  std::vector<std::string> names;
  for (LayerPass const& pass : layer_passes)
    names.emplace_back(pass.name);
  names.emplace_back(SchedulePass::name);
  for (StepPass const& pass : step_passes)
    names.emplace_back(pass.name);
  return names;
}

} // namespace foreplan

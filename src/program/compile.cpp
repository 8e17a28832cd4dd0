#include "program/compile.hpp"

#include "program/layer_passes/layer_passes.hpp"
#include "program/layers.hpp"
#include "program/step_passes/step_passes.hpp"
#include "program/synchronize.hpp"

#include <algorithm>

namespace foreplan {

namespace {

struct LayerPass {
  char const* name;
  void (*run)(LayerProgram& layer, Plan const& plan, Recompute recompute_this);
};

// In this order: what is cut, then the collectives that the cuts ask for, then what is run again (collectives included).
constexpr LayerPass layer_passes[] = {
    {"tensor_parallel", [](LayerProgram& layer, Plan const& plan, Recompute) { tensor_parallel(layer, plan); }},
    {"sequence_parallel", [](LayerProgram& layer, Plan const& plan, Recompute) { sequence_parallel(layer, plan); }},
    {"insert_collectives", [](LayerProgram& layer, Plan const& plan, Recompute) { insert_collectives(layer, plan); }},
    {"recompute", [](LayerProgram& layer, Plan const& plan, Recompute what) { recompute(layer, plan, what); }},
    {"synchronize_layer", [](LayerProgram& layer, Plan const&, Recompute) { synchronize(layer); }},
};

void schedule(Program const& program, StageProgram& stage) {
  Plan const& plan = program.plan;
  switch (plan.schedule) {
    case Schedule::gpipe: return pipeline(program, stage, gpipe(plan, stage.stage));
    case Schedule::one_f_one_b: return pipeline(program, stage, one_f_one_b(plan, stage.stage));
    case Schedule::interleaved: return pipeline(program, stage, interleaved(plan, stage.stage));
  }
}

struct StepPass {
  char const* name;
  void (*run)(Program const& program, StageProgram& stage);
};

constexpr StepPass step_passes[] = {
    {"schedule", schedule},
    {"flat_parameters", flat_parameters}, // from here on every parameter has its place in a bucket
    {"zero", zero},
    {"optimizer", optimizer},
    {"synchronize", synchronize}, // from here on no op is added or moved
};

bool is_skipped(std::vector<std::string> const& skip, char const* name) {
  return std::find(skip.begin(), skip.end(), name) != skip.end();
}

LayerProgram layer_program(LayerProgram layer, Plan const& plan, Recompute recompute_this,
                           std::vector<std::string> const& skip) {
  for (LayerPass const& pass : layer_passes)
    if (!is_skipped(skip, pass.name))
      pass.run(layer, plan, recompute_this);
  return layer;
}

// Layer programs of a plan, by position.
enum : int { embedding_program, plain_block_program, recomputed_block_program, head_program };

int program_of(Model const& model, Plan const& plan, LayerRange chunk, int layer) {
  if (layer == 0)
    return embedding_program;
  if (layer == model.layers + 1)
    return head_program;
  int const index_in_chunk = layer - std::max(chunk.first, 1);
  bool const is_recomputed =
      plan.recompute != Recompute::none && (plan.recompute_layers < 0 || index_in_chunk < plan.recompute_layers);
  return is_recomputed ? recomputed_block_program : plain_block_program;
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
      result.layers[static_cast<std::size_t>(layer)].program = program_of(program.model, program.plan, range, layer);
  }
  return result;
}

} // namespace

Program compile(Model const& model, Plan const& plan, std::vector<std::string> const& skip) {
  Program program;
  program.model = model;
  program.plan = plan;
  program.layer_programs = {
      layer_program(embedding_layer(model, plan), plan, Recompute::none, skip),
      layer_program(block_layer(model, plan), plan, Recompute::none, skip),
      layer_program(block_layer(model, plan), plan, plan.recompute, skip),
      layer_program(head_layer(model, plan), plan, Recompute::none, skip),
  };
  for (int s = 0; s < plan.pp; ++s) {
    StageProgram stage = empty_stage(program, Stage(s));
    for (StepPass const& pass : step_passes)
      if (!is_skipped(skip, pass.name))
        pass.run(program, stage);
    program.stages.push_back(std::move(stage));
  }
  return program;
}

std::vector<std::string> compile_passes() {
  std::vector<std::string> names;
  for (LayerPass const& pass : layer_passes)
    names.emplace_back(pass.name);
  for (StepPass const& pass : step_passes)
    names.emplace_back(pass.name);
  return names;
}

} // namespace foreplan

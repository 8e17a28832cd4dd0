#include "planner/allocator.hpp"

#include "planner/simulate.hpp"

#include <algorithm>
#include <cmath>

namespace foreplan {

namespace {

std::int64_t reduce_scattered(LayerProgram const& layer) {
  std::int64_t bytes = 0;
  for (Op const& op : layer.forward)
    if (op.kind == OpKind::reduce_scatter && op.stream == Stream::tp)
      bytes += layer[op.reads[0]].elements() * size_of(layer[op.reads[0]].dtype);
  return bytes;
}

std::int64_t gather_buffers(Model const& model, Plan const& plan) {
  constexpr int buffers = 2; // of inputs in the forward, of output gradients in the backward
  bool const gathers = plan.tp > 1 && plan.sequence_parallel && plan.execution.async_tensor_parallel;
  return gathers ? buffers * plan.tokens() * model.hidden * size_of(plan.parameter_dtype) : 0;
}

std::int64_t half_gradients(Plan const& plan, MemoryUse const& persistent) {
  bool const added_late = !plan.execution.fused_accumulation && plan.gradient_dtype != plan.parameter_dtype &&
                          plan.zero_stage < 2;
  return added_late ? persistent.by_category[static_cast<std::size_t>(Category::parameters)] : 0;
}

} // namespace

Bytes needed_memory(Program const& program, StageMemory const& memory) {
  double const tensors = static_cast<double>(memory.peak.use.total()) * (1 + allocator_waste);
  return Bytes(tensors + static_cast<double>(gather_buffers(program.model, program.plan) +
                                             half_gradients(program.plan, memory.persistent)));
}

Bytes waiting(Program const& program, StageProgram const& stage) {
  if (program.plan.pp > 1)
    return Bytes(0);
  std::int64_t bytes = 0;
  for (StageLayer const& layer : stage.layers)
    if (layer.program >= 0)
      bytes += reduce_scattered(program.layer_programs[static_cast<std::size_t>(layer.program)]);
  return Bytes(static_cast<double>(bytes));
}

double probability_of_fit(Bytes needed, Bytes usable) {
  double const margin = std::log(usable / needed) / memory_spread;
  return 0.5 * std::erfc(-margin / std::sqrt(2.0));
}

} // namespace foreplan

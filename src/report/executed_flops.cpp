#include "report/executed_flops.hpp"

#include "program/amounts.hpp"

namespace foreplan {

namespace {

Flops flops_of(LayerProgram const& layer, std::vector<Op> const& ops) {
  Flops sum;
  for (Op const& op : ops)
    if (kernel_class(op.kind) != KernelClass::none)
      sum += amount_of(op, operands_of(layer, op)).flops;
  return sum;
}

Flops flops_of(StageProgram const& stage, Slot const& slot, std::vector<Flops> const& by_program) {
  Flops sum;
  for (int layer = slot.first; layer < slot.last; ++layer)
    sum += by_program[static_cast<std::size_t>(stage.layers[static_cast<std::size_t>(layer)].program)];
  return sum;
}

} // namespace

Flops executed_flops(Program const& program) {
  std::array<std::vector<Flops>, slot_kind_count> by_kind; // and layer program
  for (SlotKind kind : slot_kinds)
    for (LayerProgram const& layer : program.layer_programs)
      by_kind[static_cast<std::size_t>(kind)].push_back(flops_of(layer, ops_of(layer, kind)));
  Flops sum;
  for (StageProgram const& stage : program.stages)
    for (Element const& element : stage.elements)
      if (Slot const* slot = std::get_if<Slot>(&element))
        sum += flops_of(stage, *slot, by_kind[static_cast<std::size_t>(slot->kind)]);
  return sum * (program.plan.tp * program.plan.cp * program.plan.dp);
}

} // namespace foreplan

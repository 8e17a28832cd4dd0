#include "planner/explain.hpp"

#include "engine/fold.hpp"
#include "program/amounts.hpp"
#include "program/compile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace foreplan {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

Operand operand_of(Tensor const& tensor, bool written) {
  return {written, tensor.name, tensor.shape, tensor.dtype,
          Bytes(static_cast<double>(tensor.elements() * size_of(tensor.dtype)))};
}

Seconds alone(Demand const& demand) {
  if (ComputeDemand const* compute = std::get_if<ComputeDemand>(&demand.device))
    return compute->alone;
  Seconds sum;
  for (Phase const& phase : std::get<TransferDemand>(demand.device).phases) {
    Seconds longest;
    for (Flow const& flow : phase.flows)
      longest = std::max(longest, flow.bytes / flow.rate_cap);
    sum += phase.latency + longest;
  }
  return sum;
}

Seconds latency(Demand const& demand) {
  Seconds sum;
  for (Phase const& phase : std::get<TransferDemand>(demand.device).phases)
    sum += phase.latency;
  return sum;
}

bool begins_with(std::string const& key, std::vector<std::string_view> const& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view beginning) { return key.starts_with(beginning); });
}

std::vector<Source> parameters_of(HardwareProfile const& profile, std::vector<std::string_view> const& keys) {
  std::vector<Source> found;
  for (Source const& source : profile.sources)
    if (begins_with(source.key, keys))
      found.push_back(source);
  return found;
}

void explain_kernel(OpExplanation& result, Op const& op, Operands const& operands, Cluster const& cluster) {
  HardwareProfile const& profile = cluster.profile;
  Amount const amount = amount_of(op, operands);
  bool const single = operands.reads.empty() ? true : operands.reads[0]->dtype == DType::fp32;
  FlopsPerSecond const peak = single ? profile.chip.fp32_peak : profile.chip.bf16_peak;
  result.flops = amount.flops;
  result.bytes = amount.bytes;
  result.flops_at_peak = amount.flops / peak;
  result.bytes_at_peak = amount.bytes / profile.chip.memory_bandwidth;
  std::vector<std::string_view> keys{"chip.memory_bandwidth", "efficiency.memory_bound", "overheads.kernel_fixed",
                                     "overheads.issue", "kernels."};
  bool const attention = kernel_class(op.kind) == KernelClass::attention;
  // The plain roofline, if it is what the cost model uses.
  double const efficiency = attention ? profile.efficiency.attention : profile.efficiency.gemm;
  Seconds const of_flops = result.flops_at_peak / efficiency;
  Seconds const of_bytes = result.bytes_at_peak / profile.efficiency.memory_bound;
  Seconds const roofline = std::max(of_flops, of_bytes) + profile.kernel_fixed;
  if (amount.flops > Flops(0)) {
    keys.push_back(single ? "chip.fp32_peak" : "chip.bf16_peak");
    keys.push_back(attention ? "efficiency.attention" : "efficiency.gemm");
  }
  bool const plain = std::abs((roofline - result.alone).value()) <= 1e-9 * result.alone.value();
  if (!plain)
    result.formula = "kernel model of the profile (see parameters), corrected by shape";
  else if (amount.flops > Flops(0))
    result.formula = fmt::format("max(flops / (peak * {}), bytes / (bandwidth * {})) + kernel_fixed",
                                 attention ? "efficiency.attention" : "efficiency.gemm", "efficiency.memory_bound");
  else
    result.formula = "bytes / (bandwidth * efficiency.memory_bound) + kernel_fixed";
  result.parameters = parameters_of(profile, keys);
}

void explain_communication(OpExplanation& result, Op const& op, Operands const& operands, FoldedProgram const& program,
                           Item const& item, Cluster const& cluster, Plan const& plan) {
  Demand const& demand = program.demands[at(item.demand)];
  result.communication = true;
  int const members = is_collective(op.kind) ? group_size(plan, op.group.axes) : 2;
  result.group = item.communicator < 0 ? "alone" : program.communicators[at(item.communicator)].name;
  result.bytes = item.communicator < 0 ? Bytes(0) : wire_bytes(op, operands, members);
  if (item.communicator < 0) {
    result.formula = "nothing to do: a group of one";
    return;
  }
  result.latency = latency(demand);
  if (result.alone > result.latency)
    result.rate = result.bytes / (result.alone - result.latency);
  result.formula = "latency of the library's algorithm + bytes on the wire / the rate that the group's links allow";
  result.parameters = parameters_of(cluster.profile, {"node.", "efficiency.scale_up", "efficiency.network",
                                                      "overheads.collective", "overheads.issue", "collectives."});
}

template <class Owner>
OpExplanation explanation(Op const& op, Owner const& owner, FoldedProgram const& program, Item const& item,
                          Cluster const& cluster, Plan const& plan) {
  Demand const& demand = program.demands[at(item.demand)];
  OpExplanation result;
  result.name = op.name;
  result.kind = to_string(op.kind);
  result.stream = to_string(op.stream);
  Operands const operands = operands_of(owner, op);
  for (Tensor const* tensor : operands.reads)
    result.operands.push_back(operand_of(*tensor, false));
  for (Tensor const* tensor : operands.writes)
    result.operands.push_back(operand_of(*tensor, true));
  result.alone = alone(demand);
  result.issue = demand.issue;
  result.sm_share = demand.sm_share;
  result.memory_bandwidth_share = demand.memory_bandwidth_share;
  if (is_communication(op.kind))
    explain_communication(result, op, operands, program, item, cluster, plan);
  else
    explain_kernel(result, op, operands, cluster);
  return result;
}

} // namespace

std::vector<OpExplanation> explain_ops(Model const& model, Plan const& plan, Cluster const& cluster, Stage stage) {
  Program const program = compile(model, plan);
  Folding const folding = fold(program, cluster);
  std::size_t c = 0;
  while (folding.classes[c].stage != stage)
    ++c;
  RankClass const& rank_class = folding.program.classes[c];
  std::vector<std::int64_t> uses(folding.blocks.size(), 0);
  std::vector<std::size_t> order; // blocks as they are first used
  for (Use const& use : rank_class.uses)
    if (uses[at(use.block)]++ == 0)
      order.push_back(at(use.block));
  std::vector<OpExplanation> result;
  for (std::size_t block : order) {
    BlockOrigin const& origin = folding.blocks[block];
    std::vector<Item> const& items = folding.program.blocks[block].items;
    auto add = [&](Op const& op, auto const& owner, Item const& item, std::string where) {
      if (op.kind == OpKind::wait)
        return;
      result.push_back(explanation(op, owner, folding.program, item, cluster, plan));
      result.back().where = std::move(where);
      result.back().stage = stage;
      result.back().times = uses[block];
    };
    if (origin.op != nullptr) {
      add(*origin.op, program.stages[stage.index()], items[0], "step");
      continue;
    }
    std::vector<Op> const& ops = origin.backward ? origin.layer_program->backward : origin.layer_program->forward;
    for (std::size_t i = 0; i < ops.size(); ++i)
      add(ops[i], *origin.layer_program, items[i],
          fmt::format("{}, {}", origin.layer_program->name, origin.backward ? "backward" : "forward"));
  }
  return result;
}

} // namespace foreplan

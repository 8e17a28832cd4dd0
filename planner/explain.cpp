#include "planner/explain.hpp"

#include "engine/fold.hpp"
#include "engine/partition.hpp"
#include "program/amounts.hpp"
#include "program/compile.hpp"
#include "timing/collectives/demand.hpp"
#include "timing/collectives/explain.hpp"
#include "timing/kernels.hpp"
#include "timing/kernels/explain.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace foreplan {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

Operand operand_of(Tensor const& tensor, bool written) {
  return {written, tensor.name, tensor.shape, tensor.dtype,
          Bytes(static_cast<double>(tensor.elements() * size_of(tensor.dtype)))};
}

Seconds latency(Demand const& demand) {
  Seconds sum;
  for (Phase const& phase : std::get<TransferDemand>(demand.device).phases)
    sum += phase.latency;
  return sum;
}

// A key that ends in "." or "_" stands for all that begin with it.
bool is_one_of(std::string const& key, std::vector<std::string_view> const& keys) {
  return std::any_of(keys.begin(), keys.end(), [&](std::string_view wanted) {
    return wanted.ends_with('.') || wanted.ends_with('_') ? key.starts_with(wanted) : key == wanted;
  });
}

std::vector<Source> parameters_of(HardwareProfile const& profile, std::vector<std::string_view> const& keys) {
  std::vector<Source> found;
  for (Source const& source : profile.sources)
    if (is_one_of(source.key, keys))
      found.push_back(source);
  return found;
}

// What the cost model does (timing/kernels.hpp), and the parameters that it takes.
struct Formula {
  std::string_view text;
  std::vector<std::string_view> parameters;
};

Formula kernel_formula(KernelClass kernel_class, bool single, bool is_fitted) {
  std::string_view const peak = single ? "chip.fp32_peak" : "chip.bf16_peak";
  if (is_fitted && kernel_class == KernelClass::gemm)
    return {"fixed time + the largest of three limits of the shape: memory, power, and the waves of output tiles "
            "(src/timing/kernels/gemm.hpp)",
            {peak, "chip.memory_bandwidth", "chip.multiprocessors", "overheads.issue", "kernels.memory_rate",
             "kernels.fixed", "kernels.epilogue", "kernels.tile_load",
             single ? "kernels.matrix_fp32" : "kernels.matrix_16bit", "kernels.clock_under_load",
             "kernels.band.gemm_16bit"}};
  if (is_fitted && kernel_class == KernelClass::attention)
    return {"products and softmax side by side over blocks of 128 queries (src/timing/kernels/attention.hpp)",
            {peak, "chip.multiprocessors", "overheads.issue", "kernels.fixed", "kernels.matrix_16bit",
             "kernels.attention_", "kernels.clock_under_load", "kernels.band.attention_"}};
  if (kernel_class == KernelClass::gemm || kernel_class == KernelClass::attention) {
    bool const gemm = kernel_class == KernelClass::gemm;
    return {gemm ? "max(flops / (peak * efficiency.gemm), bytes / (bandwidth * efficiency.memory_bound)) + kernel_fixed"
                 : "max(flops / (peak * efficiency.attention), bytes / (bandwidth * efficiency.memory_bound)) + "
                   "kernel_fixed",
            {peak, "chip.memory_bandwidth", gemm ? "efficiency.gemm" : "efficiency.attention",
             "efficiency.memory_bound", "overheads.kernel_fixed", "overheads.issue"}};
  }
  return {"bytes / (bandwidth * efficiency.memory_bound) + kernel_fixed",
          {"chip.memory_bandwidth", "efficiency.memory_bound", "overheads.kernel_fixed", "overheads.issue",
           "kernels.band.memory_bound"}};
}

void explain_kernel(OpExplanation& result, Op const& op, Operands const& operands, HardwareProfile const& profile) {
  Amount const amount = amount_of(op, operands);
  bool const single = operands.reads.empty() || operands.reads[0]->dtype == DType::fp32;
  result.flops = amount.flops;
  result.bytes = amount.bytes;
  result.flops_at_peak = amount.flops / (single ? profile.chip.fp32_peak : profile.chip.bf16_peak);
  result.bytes_at_peak = amount.bytes / profile.chip.memory_bandwidth;
  Formula const formula = kernel_formula(kernel_class(op.kind), single, profile.kernels.has_value());
  result.formula = formula.text;
  result.parameters = parameters_of(profile, formula.parameters);
  bool const linear = op.kind == OpKind::linear_forward || op.kind == OpKind::linear_input_gradient ||
                      op.kind == OpKind::linear_weight_gradient;
  if (linear && profile.kernels)
    result.product = explain_product(kernel_machine(profile.chip, *profile.kernels), profile.kernels->residuals,
                                     linear_shape(op, operands));
}

// Where an op runs.
struct Setting {
  FoldedProgram const& program;
  Partition const& communicators; // that the program was folded with
  Cluster const& cluster;
};

GroupLayout layout_of_class(Partition const& partition, std::int32_t communicator_class) {
  auto const found = std::find_if(
      partition.communicators.begin(), partition.communicators.end(),
      [&](CommunicatorInstance const& instance) { return instance.class_index == communicator_class; });
  return std::holds_alternative<Group>(found->what) ? found->layout : layout_of_pair(found->same_node);
}

std::vector<std::string> collective_keys(std::vector<std::size_t> const& parameters) {
  std::vector<std::string> keys;
  for (std::size_t parameter : parameters)
    keys.push_back(fmt::format("collectives.parameters.{}", collective_parameters()[parameter].name));
  return keys;
}

void explain_communication(OpExplanation& result, Op const& op, Operands const& operands, Item const& item,
                           Setting const& setting) {
  HardwareProfile const& profile = setting.cluster.profile;
  result.communication = true;
  if (item.communicator < 0) {
    result.group = "a group of one";
    result.formula = "nothing to do";
    return;
  }
  GroupLayout const layout = layout_of_class(setting.communicators, item.communicator);
  result.group = setting.program.communicators[at(item.communicator)].name;
  result.bytes = wire_bytes(op, operands, layout.members);
  result.latency = latency(setting.program.demands[at(item.demand)]);
  if (result.alone > result.latency)
    result.rate = result.bytes / (result.alone - result.latency);
  std::vector<std::string> names;
  std::vector<std::string_view> keys{"node.scale_up", "node.nic", "overheads.issue",
                                     "overheads.collective_multiprocessors"};
  if (profile.collectives) {
    result.formula =
        "the fastest of the library's algorithms and protocols for the group and size: latency + bytes / rate + a "
        "ramp (src/timing/collectives/curve.hpp)";
    CollectiveModel const& model = *profile.collectives;
    SizedCollective const what = sized(op, operands, layout.members);
    GroupShape const shape = shape_of(setting.cluster, layout);
    result.collective = explain_collective(what.op, shape, model, what.bytes);
    names = collective_keys(deciding_parameters(what.op, shape, model, what.bytes));
    keys.insert(keys.end(), names.begin(), names.end());
  } else {
    result.formula =
        "ring: collective_base + a hop's latency a step + bytes on the wire / the rate of the group's links";
    keys.insert(keys.end(), {"node.scale_up_latency", "node.network_latency", "efficiency.scale_up",
                             "efficiency.network", "overheads.collective_base"});
  }
  result.parameters = parameters_of(profile, keys);
}

template <class Owner>
OpExplanation explanation(Op const& op, Owner const& owner, Item const& item, Setting const& setting) {
  Demand const& demand = setting.program.demands[at(item.demand)];
  OpExplanation result;
  result.name = op.name;
  result.kind = to_string(op.kind);
  result.stream = to_string(op.stream);
  Operands const operands = operands_of(owner, op);
  for (Tensor const* tensor : operands.reads)
    result.operands.push_back(operand_of(*tensor, false));
  for (Tensor const* tensor : operands.writes)
    result.operands.push_back(operand_of(*tensor, true));
  result.alone = alone_seconds(demand);
  result.issue = demand.issue;
  result.evidence = demand.evidence;
  result.band = demand.band;
  result.sm_share = demand.sm_share;
  result.memory_bandwidth_share = demand.memory_bandwidth_share;
  if (is_communication(op.kind))
    explain_communication(result, op, operands, item, setting);
  else
    explain_kernel(result, op, operands, setting.cluster.profile);
  return result;
}

} // namespace

std::vector<OpExplanation> explain_ops(Model const& model, Plan const& plan, Cluster const& cluster, Stage stage) {
  Program const program = compile(model, plan);
  Folding const folding = fold(program, cluster);
  Partition const communicators = partition(program, cluster, false);
  Setting const setting{folding.program, communicators, cluster};
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
      result.push_back(explanation(op, owner, item, setting));
      result.back().where = std::move(where);
      result.back().stage = stage;
      result.back().times = uses[block];
    };
    if (origin.op != nullptr) {
      add(*origin.op, program.stages[stage.index()], items[0], "step");
      continue;
    }
    for (std::size_t i = 0; i < items.size(); ++i)
      add(op_of(origin, i), *origin.layer_program, items[i],
          fmt::format("{}, {}", origin.layer_program->name, to_string(origin.kind)));
  }
  return result;
}

} // namespace foreplan

#include "engine/entry_index.hpp"
#include "engine/explain_timeline.hpp"
#include "program/instances.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace foreplan {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

std::string_view nccl_type(DType dtype) {
  switch (dtype) {
    case DType::bf16: return "bf16";
    case DType::fp16: return "f16";
    case DType::fp32: return "f32";
    case DType::int32: return "i32";
    case DType::uint8: return "u8";
  }
  return "?";
}

// NCCL names its kernels by function, operation and type; of algorithm and protocol every name has the one it was built
// with, whichever runs.
std::string kernel_name(Op const& op, Tensor const& tensor) {
  char const* const operation = tensor.placement[Axis::tp] == partial_max || tensor.placement[Axis::pp] == partial_max
                                    ? "Max"
                                    : "Sum";
  switch (op.kind) {
    case OpKind::all_reduce:
      return fmt::format("ncclDevKernel_AllReduce_{}_{}_RING_LL", operation, nccl_type(tensor.dtype));
    case OpKind::reduce_scatter:
      return fmt::format("ncclDevKernel_ReduceScatter_{}_{}_RING_LL", operation, nccl_type(tensor.dtype));
    case OpKind::all_gather: return "ncclDevKernel_AllGather_RING_LL";
    default: return "ncclDevKernel_SendRecv";
  }
}

std::string_view collective_name(OpKind kind) {
  switch (kind) {
    case OpKind::all_reduce: return "allreduce";
    case OpKind::reduce_scatter: return "_reduce_scatter_base";
    case OpKind::all_gather: return "_allgather_base";
    case OpKind::all_to_all: return "all_to_allv";
    case OpKind::ring_shift: return "coalesced"; // a batched send and receive
    case OpKind::send: return "send";
    default: return "recv";
  }
}

std::vector<Rank> ranks_of(Plan const& plan, Op const& op, Rank rank) {
  Coordinate const own = coordinate_of(plan, rank);
  if (!is_collective(op.kind)) {
    Coordinate from = own, to = own;
    from.pp = op.channel.from.value();
    to.pp = op.channel.to.value();
    return {rank_at(plan, from), rank_at(plan, to)};
  }
  return members_of(plan, rank, op.group);
}

std::string group_name(Op const& op) {
  if (!is_collective(op.kind))
    return "pp";
  return to_string(op.group.axes) + (op.group.pipeline_ends ? " ends" : "");
}

template <class Owner>
TraceCollective collective_of(Plan const& plan, Op const& op, Owner const& owner, Rank rank) {
  Operands const operands = operands_of(owner, op);
  Tensor const& in = operands.reads.empty() ? *operands.writes[0] : *operands.reads[0];
  Tensor const& out = operands.writes.empty() ? *operands.reads[0] : *operands.writes[0];
  return {std::string(collective_name(op.kind)),
          group_name(op),
          ranks_of(plan, op, rank),
          in.elements(),
          out.elements(),
          in.dtype};
}

template <class Owner>
void describe(TraceKernel& kernel, Plan const& plan, Op const& op, Owner const& owner, Rank rank) {
  kernel.op = op.name;
  if (is_communication(op.kind)) {
    kernel.name = kernel_name(op, op.reads.empty() ? owner[op.writes[0]] : owner[op.reads[0]]);
    kernel.collective = collective_of(plan, op, owner, rank);
  } else {
    kernel.name = fmt::format("{} ({})", op.name, to_string(op.kind));
  }
}

std::string where(Program const& program, FoldedClass const& folded, std::int32_t use) {
  UseOrigin const origin = folded.uses[at(use)];
  Slot const* slot = std::get_if<Slot>(&program.stages[folded.stage.index()].elements[at(origin.element)]);
  if (slot == nullptr)
    return {};
  std::string text = fmt::format("{} of micro-batch {}", to_string(slot->kind), slot->micro_batch.value());
  if (program.plan.chunks > 1)
    text += fmt::format(", chunk {}", slot->chunk.value());
  return text + fmt::format(", layer {}", origin.layer);
}

} // namespace

TraceRank trace_of(Program const& program, Folding const& folding, Timeline const& timeline, std::size_t class_index) {
  RankClass const& rank_class = folding.program.classes[class_index];
  FoldedClass const& folded = folding.classes[class_index];
  StageProgram const& stage = program.stages[folded.stage.index()];
  std::vector<TimelineEntry> const& entries = timeline.classes[class_index];
  EntryIndex const index = index_entries(folding.program, rank_class, entries);
  TraceRank trace{folded.representative, fmt::format("stage {}", folded.stage.value()), {}};
  for (TimelineEntry const& ran : entries) {
    BlockOrigin const& origin = folding.blocks[at(rank_class.uses[at(ran.use)].block)];
    Item const& item = item_of(folding.program, rank_class, ran);
    HostTimes const host = host_times(folding.program, rank_class, index, ran);
    TraceKernel kernel;
    kernel.stream = item.stream;
    kernel.start = item.communicator >= 0 ? std::min(ran.start, std::max(ran.arrival, host.ready)) : ran.start;
    kernel.end = ran.end;
    kernel.issue_begin = host.begin;
    kernel.issue_end = host.end;
    kernel.where = where(program, folded, ran.use);
    if (origin.op != nullptr)
      describe(kernel, program.plan, *origin.op, stage, folded.representative);
    else if (is_segment(origin))
      kernel.name = kernel.op = fmt::format("{} layers", to_string(origin.kind));
    else
      describe(kernel, program.plan, op_of(origin, at(ran.item)), *origin.layer_program, folded.representative);
    if (kernel.end > kernel.start) // waits and groups of one run nothing
      trace.kernels.push_back(std::move(kernel));
  }
  return trace;
}

} // namespace foreplan

#include "validate/devices/measured_timeline.hpp"

#include "interpreter/execution_graph.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace foreplan {
namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

std::vector<StageStorage> layouts_of(Program const& program) {
  std::vector<StageStorage> layouts;
  for (StageProgram const& stage : program.stages)
    layouts.push_back(lay_out(program, stage, Reuse::same_size));
  return layouts;
}

std::size_t stage_of(Program const& program, std::size_t rank) {
  return at(coordinate_of(program.plan, Rank(static_cast<std::int64_t>(rank))).pp);
}

std::string where(Instance const& instance) {
  if (instance.layer < 0)
    return {};
  char const* const pass = instance.op->part == Part::forward ? "forward" : "backward";
  return fmt::format("{} of micro-batch {}, layer {}", pass, instance.micro_batch.value(), instance.layer);
}

TraceCollective collective_of(Program const& program, Instance const& instance, Rank rank) {
  Op const& op = *instance.op;
  StageProgram const& stage = program.stages[stage_of(program, rank.index())];
  Tensor const& in = tensor_of(stage, instance, op.reads.empty() ? op.writes[0] : op.reads[0]);
  Tensor const& out = tensor_of(stage, instance, op.writes.empty() ? op.reads[0] : op.writes[0]);
  std::vector<Rank> ranks = peers_of(program.plan, rank, op);
  ranks.push_back(rank);
  std::sort(ranks.begin(), ranks.end());
  bool const backwards = !is_collective(op.kind) && (op.kind == OpKind::send) != (ranks.front() == rank);
  if (backwards) // from the sender to the receiver
    std::reverse(ranks.begin(), ranks.end());
  std::string const group = is_collective(op.kind) ? to_string(op.group.axes) : "pp";
  return {std::string(to_string(op.kind)), group, ranks, in.elements(), out.elements(), in.dtype};
}

} // namespace

std::vector<Place> places_of(Program const& program, StageProgram const& stage) {
  std::vector<Place> places;
  BreaksOfLayers const breaks = breaks_of(program);
  std::int32_t use = 0;
  for (Element const& element : stage.elements) {
    Slot const* slot = std::get_if<Slot>(&element);
    if (slot == nullptr) {
      places.push_back({use++, 0});
      continue;
    }
    for (LayerPiece const& piece : pieces_of(stage, *slot, breaks)) {
      for (std::size_t item = 0; item < piece.last - piece.first; ++item)
        places.push_back({use, static_cast<std::int32_t>(item)});
      ++use;
    }
  }
  return places;
}

Timeline timeline_of(Program const& program, Run const& run) {
  std::vector<StageStorage> const layouts = layouts_of(program);
  ExecutionGraph const graph = make_execution_graph(program, layouts);
  std::vector<std::vector<Place>> places;
  for (StageProgram const& stage : program.stages)
    places.push_back(places_of(program, stage));
  Timeline timeline;
  timeline.step = Seconds(run.step.value);
  timeline.classes.resize(run.ranks.size());
  for (std::size_t node = 0; node < graph.size(); ++node) {
    double last_arrival = 0;
    for (ExecutionGraph::Member const& member : graph.members_of(node))
      last_arrival = std::max(last_arrival, run.ranks[at(member.rank)].times[at(member.instance)].arrival);
    for (ExecutionGraph::Member const& member : graph.members_of(node)) {
      OpTimes const& op = run.ranks[at(member.rank)].times[at(member.instance)];
      Place const place = places[stage_of(program, at(member.rank))][at(member.instance)];
      timeline.classes[at(member.rank)].push_back(
          {place.use, place.item, op.arrival, std::min(last_arrival, op.end), op.end});
      ++timeline.items;
    }
  }
  for (std::vector<TimelineEntry>& entries : timeline.classes)
    std::stable_sort(entries.begin(), entries.end(),
                     [](TimelineEntry const& a, TimelineEntry const& b) { return a.end < b.end; });
  return timeline;
}

std::vector<TraceRank> trace_of(Program const& program, Run const& run) {
  std::vector<TraceRank> trace;
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    Rank const rank(static_cast<std::int64_t>(r));
    std::size_t const stage = stage_of(program, r);
    TraceRank result{rank, fmt::format("stage {}, {}", stage, run.ranks[r].host), {}};
    std::vector<Instance> const instances = instances_of(program, program.stages[stage]);
    for (std::size_t i = 0; i < instances.size(); ++i) {
      Op const& op = *instances[i].op;
      OpTimes const& times = run.ranks[r].times[i];
      if (op.kind == OpKind::wait)
        continue;
      TraceKernel kernel{.name = fmt::format("{} ({})", op.name, to_string(op.kind)),
                         .op = op.name,
                         .where = where(instances[i]),
                         .stream = static_cast<int>(op.stream),
                         .start = times.start,
                         .end = times.end,
                         .issue_begin = times.start,
                         .issue_end = times.start,
                         .collective = {}};
      if (is_communication(op.kind))
        kernel.collective = collective_of(program, instances[i], rank);
      result.kernels.push_back(std::move(kernel));
    }
    trace.push_back(std::move(result));
  }
  return trace;
}

} // namespace foreplan

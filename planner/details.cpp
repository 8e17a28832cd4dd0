#include "planner/details.hpp"

#include "cluster/links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

namespace foreplan {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

Element const& element_of(Simulation const& simulation, Stage stage, std::int32_t element) {
  return simulation.program->stages[stage.index()].elements[at(element)];
}

// A pass that was cut into several slots is one span.
void add_passes(Details& details, Simulation const& simulation, std::size_t class_index) {
  FoldedClass const& folded = simulation.folding.classes[class_index];
  FoldedProgram const& program = simulation.folding.program;
  std::map<std::tuple<SlotKind, std::int32_t, std::int32_t>, std::size_t> known;
  for (TimelineEntry const& ran : simulation.timeline.classes[class_index]) {
    Slot const* slot = std::get_if<Slot>(&element_of(simulation, folded.stage, folded.uses[at(ran.use)].element));
    Use const& use = program.classes[class_index].uses[at(ran.use)];
    if (slot == nullptr || program.blocks[at(use.block)].items[at(ran.item)].stream != compute_stream)
      continue;
    auto const [found, is_new] = known.try_emplace({slot->kind, slot->chunk.value(), slot->micro_batch.value()},
                                                   details.passes.size());
    if (is_new)
      details.passes.push_back(
          {folded.stage, slot->kind, slot->chunk, slot->micro_batch, Seconds(ran.start), Seconds(ran.end)});
    else
      details.passes[found->second].end = std::max(details.passes[found->second].end, Seconds(ran.end));
  }
}

struct Span {
  Seconds start;
  Seconds end;
};

// By element of the stage program: when the class's compute stream ran it, or had come to it.
std::vector<Span> spans_of_elements(Simulation const& simulation, std::size_t class_index) {
  FoldedClass const& folded = simulation.folding.classes[class_index];
  FoldedProgram const& program = simulation.folding.program;
  std::vector<std::optional<Span>> ran(simulation.program->stages[folded.stage.index()].elements.size());
  for (TimelineEntry const& entry : simulation.timeline.classes[class_index]) {
    Use const& use = program.classes[class_index].uses[at(entry.use)];
    if (program.blocks[at(use.block)].items[at(entry.item)].stream != compute_stream)
      continue;
    std::optional<Span>& span = ran[at(folded.uses[at(entry.use)].element)];
    span = {span ? span->start : Seconds(entry.start), Seconds(entry.end)}; // entries are in the order of their ends
  }
  std::vector<Span> spans;
  Seconds reached;
  for (std::optional<Span> const& span : ran) {
    spans.push_back(span.value_or(Span{reached, reached}));
    reached = spans.back().end;
  }
  return spans;
}

std::vector<MemoryMoment> memory_moments(Program const& program, StageProgram const& stage,
                                         std::vector<Span> const& spans) {
  std::vector<MemoryMoment> moments;
  std::int32_t last = -1;
  for (MemoryPoint const& point : memory_of(program, stage, true).points) {
    if (point.element != last) {
      Element const& element = stage.elements[at(point.element)];
      Slot const* slot = std::get_if<Slot>(&element);
      moments.push_back({slot == nullptr
                             ? std::get<Op>(element).name
                             : fmt::format("{} of micro-batch {}", letter(slot->kind), slot->micro_batch.value()),
                         {},
                         0,
                         spans[at(point.element)].start,
                         spans[at(point.element)].end});
      last = point.element;
    }
    moments.back().use = point.use;
    moments.back().peak = std::max(moments.back().peak, point.peak);
  }
  return moments;
}

} // namespace

Details details_of(Simulation const& simulation, Cluster const& cluster) {
  Details details;
  Plan const& plan = simulation.program->plan;
  for (int stage = 0; stage < plan.pp; ++stage) {
    std::size_t const slowest = slowest_class(simulation, Stage(stage));
    add_passes(details, simulation, slowest);
    details.memory.push_back(memory_moments(*simulation.program, simulation.program->stages[at(stage)],
                                            spans_of_elements(simulation, slowest)));
  }
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    Coordinate const place = coordinate_of(plan, Rank(rank));
    details.ranks.push_back({Rank(rank), place.tp, place.dp, place.pp, node_of(cluster, Rank(rank))});
  }
  return details;
}

} // namespace foreplan

#include "engine/segment.hpp"

#include "engine/engine.hpp"
#include "engine/intervals.hpp"

#include <algorithm>

namespace foreplan {

Segment compose(Segment const& first, Segment const& second) {
  Segment both = first;
  both.cold = std::max(first.cold + second.device, first.host + second.cold);
  both.device += second.device;
  both.host += second.host;
  both.busy_bandwidth += second.busy_bandwidth;
  both.busy_multiprocessors += second.busy_multiprocessors;
  both.exposed_tp += second.exposed_tp;
  both.hidden_tp += second.hidden_tp;
  both.exposed_cp += second.exposed_cp;
  both.hidden_cp += second.hidden_cp;
  for (std::size_t i = 0; i < both.compute.size(); ++i)
    both.compute[i] += second.compute[i];
  return both;
}

namespace {

// The block alone in a program of one class; its communicators have no other members.
FoldedProgram alone(FoldedProgram const& program, Block const& block) {
  FoldedProgram single;
  single.links = program.links;
  single.blocks = {block};
  std::vector<std::int32_t> communicators; // of the whole program, by the one here
  for (Item& item : single.blocks[0].items) {
    single.demands.push_back(program.demands[static_cast<std::size_t>(item.demand)]);
    item.demand = static_cast<std::int32_t>(single.demands.size()) - 1;
    if (item.communicator >= 0) {
      auto const known = std::find(communicators.begin(), communicators.end(), item.communicator);
      auto const index = static_cast<std::int32_t>(known - communicators.begin());
      if (known == communicators.end()) {
        communicators.push_back(item.communicator);
        single.communicators.push_back({"own", {0}});
      }
      item.communicator = index;
    }
    // Before the block there is nothing to wait for.
    std::erase_if(item.waits, [](std::int32_t wait) { return wait < 0; });
  }
  single.classes = {{"own", 1, {{0, 0, 0}}, {}}};
  return single;
}

void without_host(FoldedProgram& program) {
  for (Demand& demand : program.demands)
    demand.issue = demand.lead = Seconds(0);
}

} // namespace

Segment segment_of(FoldedProgram const& program, Block const& block, BlockOrigin const& origin) {
  FoldedProgram single = alone(program, block);
  Segment segment;
  segment.cold = run_fast(single, {.keep_entries = false}).step;
  for (Demand const& demand : single.demands)
    segment.host += demand.issue;
  without_host(single);
  Timeline const timeline = run_fast(single);
  segment.device = timeline.step;

  std::vector<Interval> compute, tp, cp;
  for (TimelineEntry const& ran : timeline.classes[0]) {
    auto const index = static_cast<std::size_t>(ran.item);
    Seconds const taken(ran.end - ran.start);
    segment.busy_bandwidth += single.demands[index].memory_bandwidth_share * taken.value();
    segment.busy_multiprocessors += single.demands[index].sm_share * taken.value();
    if (single.blocks[0].items[index].stream == compute_stream)
      segment.compute[static_cast<std::size_t>(kernel_class(op_of(origin, index).kind))] += taken;
    std::uint8_t const stream = single.blocks[0].items[index].stream;
    auto& busy = stream == compute_stream ? compute : static_cast<Stream>(stream) == Stream::cp ? cp : tp;
    busy.push_back({ran.start, ran.end});
  }
  for (std::vector<Interval>* busy : {&compute, &tp, &cp})
    *busy = joined(std::move(*busy));
  std::vector<Interval> const idle = without({{0, segment.device.value()}}, compute);
  std::vector<Interval> const only_tp = without(idle, common(idle, cp));
  segment.exposed_cp = Seconds(length(without(common(idle, cp), tp)));
  segment.exposed_tp = Seconds(length(only_tp) + length(common(common(idle, cp), tp)));
  segment.hidden_tp = Seconds(length(common(tp, compute)));
  segment.hidden_cp = Seconds(length(common(cp, compute)));
  return segment;
}

} // namespace foreplan

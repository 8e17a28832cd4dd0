#include "engine/explain_timeline.hpp"

#include "engine/entry_index.hpp"
#include "engine/intervals.hpp"

#include <algorithm>
#include <vector>

namespace foreplan {

namespace {

enum Lane : std::size_t { compute_lane, tp_lane, cp_lane, dp_lane, pp_lane, offload_lane, host_lane, lanes };

Lane lane_of(std::uint8_t stream) {
  switch (static_cast<Stream>(stream)) {
    case Stream::compute: return compute_lane;
    case Stream::tp: return tp_lane;
    case Stream::cp: return cp_lane;
    case Stream::dp:
    case Stream::replica: return dp_lane;
    case Stream::copy_down:
    case Stream::copy_up:
    case Stream::host:
    case Stream::disk_read:
    case Stream::disk_write: return offload_lane;
    default: return pp_lane;
  }
}

void add_compute(Breakdown& result, BlockOrigin const& origin, TimelineEntry const& ran) {
  Seconds const taken(ran.end - ran.start);
  if (origin.op != nullptr) {
    result.compute[static_cast<std::size_t>(kernel_class(origin.op->kind))] += taken;
  } else if (is_segment(origin)) { // stretched by what ran beside it
    Seconds const inside = origin.exposed_tp + origin.exposed_cp + origin.compute[0] + origin.compute[1] +
                           origin.compute[2] + origin.compute[3];
    double const stretch = taken / inside;
    for (std::size_t i = 0; i < result.compute.size(); ++i)
      result.compute[i] += origin.compute[i] * stretch;
    result.exposed_tp += origin.exposed_tp * stretch;
    result.hidden_tp += origin.hidden_tp * stretch;
    result.exposed_cp += origin.exposed_cp * stretch;
    result.hidden_cp += origin.hidden_cp * stretch;
    Seconds const hidden = origin.hidden_tp + origin.hidden_cp;
    result.communicating += (origin.exposed_tp + origin.exposed_cp + hidden) * stretch;
    result.overlapped += hidden * stretch;
  } else {
    OpKind const kind = op_of(origin, static_cast<std::size_t>(ran.item)).kind;
    result.compute[static_cast<std::size_t>(kernel_class(kind))] += taken;
  }
}

} // namespace

Breakdown breakdown_of(Folding const& folding, Timeline const& timeline, std::size_t class_index) {
  Breakdown result;
  FoldedProgram const& program = folding.program;
  RankClass const& rank_class = program.classes[class_index];
  EntryIndex const index = index_entries(program, rank_class, timeline.classes[class_index]);
  std::array<std::vector<Interval>, lanes> busy;
  std::vector<Interval> launched; // collectives and transfers, from their launch
  for (TimelineEntry const& ran : timeline.classes[class_index]) {
    auto const block = static_cast<std::size_t>(rank_class.uses[static_cast<std::size_t>(ran.use)].block);
    Item const& item = program.blocks[block].items[static_cast<std::size_t>(ran.item)];
    Lane const lane = lane_of(item.stream);
    if (item.communicator >= 0) {
      double const ready = std::max(ran.arrival, host_times(program, rank_class, index, ran).ready);
      launched.push_back({std::min(ready, ran.start), ran.end});
    }
    busy[lane].push_back({ran.start, ran.end});
    if (lane == compute_lane) {
      add_compute(result, folding.blocks[block], ran);
      busy[host_lane].push_back({ran.arrival, ran.start}); // nothing but the issue was missing
    }
  }
  for (auto& intervals : busy)
    intervals = joined(std::move(intervals));
  launched = joined(std::move(launched));
  result.communicating += Seconds(length(launched));
  result.overlapped += Seconds(length(common(launched, busy[compute_lane])));
  std::vector<Interval> idle = without({{0, timeline.step.value()}}, busy[compute_lane]);
  auto expose = [&](Lane lane, Seconds& exposed, Seconds* hidden) {
    std::vector<Interval> const there = common(idle, busy[lane]);
    exposed += Seconds(length(there));
    if (hidden != nullptr)
      *hidden += Seconds(length(common(busy[lane], busy[compute_lane])));
    idle = without(idle, there);
  };
  expose(tp_lane, result.exposed_tp, &result.hidden_tp);
  expose(cp_lane, result.exposed_cp, &result.hidden_cp);
  expose(dp_lane, result.exposed_dp, &result.hidden_dp);
  expose(pp_lane, result.exposed_pp, &result.hidden_pp);
  expose(offload_lane, result.exposed_offload, &result.hidden_offload);
  expose(host_lane, result.host, nullptr);
  result.bubble = Seconds(length(idle));
  return result;
}

} // namespace foreplan

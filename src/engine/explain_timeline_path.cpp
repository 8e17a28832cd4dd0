#include "engine/entry_index.hpp"
#include "engine/explain_timeline.hpp"

#include <algorithm>

namespace foreplan {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

struct Place {
  std::int32_t rank_class = -1;
  std::int32_t entry = -1;
};

PathPart part_of(SlotKind kind) {
  switch (kind) {
    case SlotKind::forward: return PathPart::forward;
    case SlotKind::backward: return PathPart::backward;
    case SlotKind::weight_gradient: break;
  }
  return PathPart::weight_gradient;
}

PathPart part_of(Op const& op, SlotKind kind, bool step_level) {
  if (op.kind == OpKind::send || op.kind == OpKind::receive)
    return PathPart::transfer;
  if (!step_level)
    return part_of(kind);
  switch (op.kind) {
    case OpKind::zero_fill:
    case OpKind::wait: return PathPart::setup;
    case OpKind::copy: return PathPart::offload;
    case OpKind::all_gather: return PathPart::gather;
    case OpKind::all_to_all:
    case OpKind::reduce_scatter: return PathPart::reduction;
    case OpKind::quantize:
    case OpKind::dequantize:
    case OpKind::requantize: return PathPart::codes;
    case OpKind::all_reduce: return op.host_sync ? PathPart::optimizer : PathPart::reduction; // the global norm
    default: return PathPart::optimizer;
  }
}

PathKind kind_of(Op const& op) {
  if (is_communication(op.kind))
    switch (op.stream) {
      case Stream::tp: return PathKind::tp;
      case Stream::cp: return PathKind::cp;
      case Stream::dp:
      case Stream::replica: return PathKind::dp;
      default: return PathKind::pp;
    }
  switch (op.stream) {
    case Stream::host: return PathKind::host_optimizer;
    case Stream::copy_down:
    case Stream::copy_up: return PathKind::host_copy;
    case Stream::disk_read:
    case Stream::disk_write: return PathKind::drive;
    default: break;
  }
  switch (kernel_class(op.kind)) {
    case KernelClass::gemm: return PathKind::gemm;
    case KernelClass::attention: return PathKind::attention;
    default: return PathKind::memory_bound;
  }
}

class PathWalk {
public:
  PathWalk(Program const& program, Folding const& folding, Timeline const& timeline)
      : program_(program), folding_(folding), timeline_(timeline) {
    for (std::size_t c = 0; c < timeline.classes.size(); ++c)
      index_.push_back(index_entries(folding.program, folding.program.classes[c], timeline.classes[c]));
  }

  std::vector<PathStep> run() {
    for (Place place = last(); place.entry >= 0;)
      place = before(place);
    std::reverse(steps_.begin(), steps_.end());
    return std::move(steps_);
  }

private:
  TimelineEntry const& entry(Place place) const { return timeline_.classes[at(place.rank_class)][at(place.entry)]; }
  RankClass const& rank_class(Place place) const { return folding_.program.classes[at(place.rank_class)]; }
  EntryIndex const& index(Place place) const { return index_[at(place.rank_class)]; }

  Place last() const {
    Place result;
    for (std::size_t c = 0; c < timeline_.classes.size(); ++c)
      for (std::size_t e = 0; e < timeline_.classes[c].size(); ++e)
        if (Place const place{static_cast<std::int32_t>(c), static_cast<std::int32_t>(e)};
            result.entry < 0 || entry(place).end > entry(result).end)
          result = place;
    return result;
  }

  // Notes the item and says what it waited for.
  Place before(Place place) {
    note(place);
    Place const late = latest_member(place);
    Place const awaited = awaited_by(late);
    double const ready = host_times(folding_.program, rank_class(late), index(late), entry(late)).ready;
    double const free = awaited.entry < 0 ? 0 : entry(awaited).end;
    double const rounding = 1e-9 * timeline_.step.value();
    return ready > free + rounding ? before_host(late, awaited) : awaited;
  }

  double ready(Place place) const {
    return std::max(entry(place).arrival,
                    host_times(folding_.program, rank_class(place), index(place), entry(place)).ready);
  }

  // Of a transfer's members, the one that came last.
  Place latest_member(Place place) const {
    std::int32_t const communicator = item_of(folding_.program, rank_class(place), entry(place)).communicator;
    if (communicator < 0)
      return place;
    auto const turn = at(index(place).turn[at(place.entry)]);
    Place late = place;
    for (std::int32_t member : folding_.program.communicators[at(communicator)].members) {
      Place const other{member, index_[at(member)].on_communicator.at(communicator)[turn]};
      if (ready(other) > ready(late))
        late = other;
    }
    return late;
  }

  // What ended last of the item's stream and waits; entry -1: nothing was before it.
  Place awaited_by(Place place) const {
    EntryIndex const& entries = index(place);
    TimelineEntry const& waiting = entry(place);
    Use const& use = rank_class(place).uses[at(waiting.use)];
    Block const& block = folding_.program.blocks[at(use.block)];
    Item const& item = block.items[at(waiting.item)];
    Place result{place.rank_class, -1};
    auto const consider = [&](std::int32_t candidate) {
      Place const other{place.rank_class, candidate};
      if (result.entry < 0 || entry(other).end > entry(result).end)
        result = other;
    };
    if (std::int32_t const turn = entries.place[at(place.entry)]; turn > 0)
      consider(entries.on_stream[item.stream][at(turn - 1)]);
    for (std::int32_t wait : item.waits) {
      if (wait >= 0) {
        consider(entries.entry_of(waiting.use, wait));
        continue;
      }
      auto const& stream = entries.on_stream[at(wait_for_entry - wait)];
      auto const issued = std::partition_point(stream.begin(), stream.end(), [&](std::int32_t other) {
        return entry({place.rank_class, other}).use < waiting.use;
      });
      if (issued != stream.begin())
        consider(*(issued - 1));
    }
    for (std::int32_t w = use.first_wait; w < use.first_wait + use.wait_count; ++w)
      if (std::int32_t const target = rank_class(place).waits[at(w)]; target >= 0) {
        Block const& other = folding_.program.blocks[at(rank_class(place).uses[at(target)].block)];
        consider(entries.entry_of(target, static_cast<std::int32_t>(other.items.size()) - 1));
      }
    return result;
  }

  // The host was late. From the later of what the device had waited for and what the host had waited for: where the host
  // never stood still the device's wait tells more.
  Place before_host(Place place, Place awaited) {
    std::int32_t const use = index(place).host_sync[at(entry(place).use)];
    Place const synced{place.rank_class, use < 0 ? -1 : index(place).entry_of(use, 0)};
    auto const end_of = [&](Place other) { return other.entry < 0 ? 0 : entry(other).end; };
    Place const from = end_of(synced) > end_of(awaited) ? synced : awaited;
    PathStep step;
    step.part = part(place) == PathPart::transfer ? PathPart::forward : part(place);
    step.stage = step.to = stage(place);
    step.slot = slot(place);
    step.start = end_of(from);
    step.end = ready(place);
    step.by_kind[static_cast<std::size_t>(PathKind::host)] = Seconds(step.end - step.start);
    steps_.push_back(step);
    return from;
  }

  BlockOrigin const& origin(Place place) const {
    return folding_.blocks[at(rank_class(place).uses[at(entry(place).use)].block)];
  }
  Stage stage(Place place) const { return folding_.classes[at(place.rank_class)].stage; }

  Op const& op(Place place) const {
    BlockOrigin const& from = origin(place);
    return op_of(from, at(entry(place).item));
  }

  PathPart part(Place place) const {
    BlockOrigin const& from = origin(place);
    if (is_segment(from))
      return part_of(from.kind);
    return part_of(op(place), from.kind, from.op != nullptr);
  }

  // Tells slots apart; those of one chunk and micro-batch that a pass has cut are one.
  std::int32_t slot(Place place) const {
    FoldedClass const& folded = folding_.classes[at(place.rank_class)];
    Element const& element =
        program_.stages[folded.stage.index()].elements[at(folded.uses[at(entry(place).use)].element)];
    Slot const* of = std::get_if<Slot>(&element);
    if (of == nullptr)
      return -1;
    return (of->micro_batch.value() * program_.plan.chunks + of->chunk.value()) * slot_kind_count +
           static_cast<std::int32_t>(of->kind);
  }

  void note(Place place) {
    TimelineEntry const& ran = entry(place);
    if (ran.end <= ran.start)
      return;
    PathStep step;
    step.part = part(place);
    step.stage = step.to = stage(place);
    step.slot = slot(place);
    step.start = ran.start;
    step.end = ran.end;
    Seconds const taken(ran.end - ran.start);
    BlockOrigin const& from = origin(place);
    if (is_segment(from)) {
      Seconds const inside = from.compute[0] + from.compute[1] + from.compute[2] + from.compute[3] + from.exposed_tp +
                             from.exposed_cp;
      double const stretch = taken / inside;
      for (std::size_t k = 0; k < 3; ++k)
        step.by_kind[k] = from.compute[k] * stretch;
      step.by_kind[static_cast<std::size_t>(PathKind::memory_bound)] += from.compute[3] * stretch;
      step.by_kind[static_cast<std::size_t>(PathKind::tp)] = from.exposed_tp * stretch;
      step.by_kind[static_cast<std::size_t>(PathKind::cp)] = from.exposed_cp * stretch;
    } else {
      if (step.part == PathPart::transfer) {
        step.stage = op(place).channel.from;
        step.to = op(place).channel.to;
      }
      step.by_kind[static_cast<std::size_t>(kind_of(op(place)))] = taken;
    }
    steps_.push_back(step);
  }

  Program const& program_;
  Folding const& folding_;
  Timeline const& timeline_;
  std::vector<EntryIndex> index_; // by class
  std::vector<PathStep> steps_;   // from the end on
};

} // namespace

bool is_segment(BlockOrigin const& origin) {
  return origin.exposed_tp + origin.exposed_cp + origin.compute[0] + origin.compute[1] + origin.compute[2] +
             origin.compute[3] >
         Seconds(0);
}

std::vector<PathStep> critical_path_of(Program const& program, Folding const& folding, Timeline const& timeline) {
  return PathWalk(program, folding, timeline).run();
}

} // namespace foreplan

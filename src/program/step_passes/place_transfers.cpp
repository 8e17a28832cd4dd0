// When a stage asks for what it receives, and when it takes back the memory of what it has sent, by the schedule's slots.
// Transfers of one kind stand in one queue, so that one which is asked for late holds up those behind it, for both sides.
#include "program/step_passes/step_passes.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>
#include <tuple>

namespace foreplan {

namespace {

class UnitTimes {
public:
  UnitTimes(Plan const& plan, std::vector<std::vector<Work>> const& orders) : plan_(plan), orders_(orders) {
    next_.resize(orders.size());
    starts.resize(orders.size());
    std::vector<std::int64_t> free(orders.size());
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t s = 0; s < orders.size(); ++s)
        while (std::optional<std::int64_t> const start = next_start(s, free[s])) {
          ends_[key(s, orders[s][next_[s]])] = free[s] = *start + units_of(plan, orders[s][next_[s]].kind);
          starts[s].push_back(*start);
          ++next_[s];
          progress = true;
        }
    }
    for (std::size_t s = 0; s < orders.size(); ++s)
      if (next_[s] < orders[s].size())
        throw std::logic_error("a schedule in which stages wait for each other");
  }

  // When what a pass reads from another part is there; nothing: it reads nothing from another part.
  std::optional<std::int64_t> arrival(std::size_t stage, Work const& work) const {
    if (work.kind == SlotKind::weight_gradient)
      return std::nullopt;
    int const part = key_part(stage, work) + (work.kind == SlotKind::forward ? -1 : 1);
    if (part < 0 || part >= plan_.pp * plan_.chunks)
      return std::nullopt;
    auto const found = ends_.find({work.kind, part, work.micro_batch.value()});
    return found == ends_.end() ? INT64_MAX : found->second;
  }

  std::vector<std::vector<std::int64_t>> starts; // by stage and position

private:
  using Key = std::tuple<SlotKind, int, std::int32_t>; // pass, part, micro-batch

  int key_part(std::size_t stage, Work const& work) const {
    return part_of(plan_, Stage(static_cast<std::int64_t>(stage)), work.chunk);
  }
  Key key(std::size_t stage, Work const& work) const {
    return {work.kind, key_part(stage, work), work.micro_batch.value()};
  }

  std::optional<std::int64_t> next_start(std::size_t stage, std::int64_t free) const {
    if (next_[stage] == orders_[stage].size())
      return std::nullopt;
    std::int64_t const arrived = arrival(stage, orders_[stage][next_[stage]]).value_or(0);
    return arrived == INT64_MAX ? std::nullopt : std::optional(std::max(free, arrived));
  }

  Plan const& plan_;
  std::vector<std::vector<Work>> const& orders_;
  std::vector<std::size_t> next_;
  std::map<Key, std::int64_t> ends_;
};

std::size_t first_from(std::vector<std::int64_t> const& starts, std::int64_t time) {
  return static_cast<std::size_t>(std::lower_bound(starts.begin(), starts.end(), time) - starts.begin());
}

// As the zero-bubble authors' runtime does: asked for when it would be there if every pass took as long, so that both sides
// come to their transfers in one order; the memory of what was sent is free a pass later.
std::vector<std::vector<PlacedWork>> by_unit_times(Plan const& plan, std::vector<std::vector<Work>> const& orders) {
  UnitTimes const times(plan, orders);
  std::vector<std::vector<PlacedWork>> placed(orders.size());
  for (std::size_t s = 0; s < orders.size(); ++s)
    for (std::size_t i = 0; i < orders[s].size(); ++i) {
      std::int64_t const end = times.starts[s][i] + 1, arrival = times.arrival(s, orders[s][i]).value_or(end);
      placed[s].push_back(
          {orders[s][i], std::min(i, first_from(times.starts[s], arrival)), i, first_from(times.starts[s], end + 1)});
    }
  return placed;
}

// Megatron-LM's interleaved schedule without p2p overlap (core/pipeline_parallel/schedules.py,
// forward_backward_pipelining_with_interleaving; p2p_communication.py, _batched_p2p_ops): behind each forward that fills
// the pipeline, each forward and backward of its steady state and each backward that drains it, a stage's transfers are
// one batch. What was computed is sent, what comes next is received, and the stage goes on when all have ended.
std::vector<PlacedWork> in_batches(std::vector<Work> const& order) {
  auto const first_backward = static_cast<std::size_t>(std::ranges::find(order, SlotKind::backward, &Work::kind) -
                                                       order.begin());
  std::vector<PlacedWork> placed;
  for (std::size_t i = 0; i < order.size(); ++i) {
    bool const is_forward = order[i].kind == SlotKind::forward;
    bool const opens_pair = is_forward && i + 1 >= first_backward;
    bool const closes_pair = !is_forward && i > 0 && order[i - 1].kind == SlotKind::forward;
    std::size_t const first = closes_pair ? i - 1 : i, last = opens_pair ? i + 1 : i;
    placed.push_back({order[i], first, last, last + 1});
  }
  return placed;
}

} // namespace

int units_of(Plan const& plan, SlotKind kind) {
  return kind == SlotKind::backward && !splits_backward(plan.schedule) ? 2 : 1;
}

std::vector<std::vector<std::int64_t>> unit_starts(Plan const& plan, std::vector<std::vector<Work>> const& orders) {
  return UnitTimes(plan, orders).starts;
}

std::vector<std::vector<PlacedWork>> place_transfers(Plan const& plan, std::vector<std::vector<Work>> const& orders) {
  if (splits_backward(plan.schedule))
    return by_unit_times(plan, orders);
  bool const overlapped = plan.p2p == P2p::overlapped;
  std::vector<std::vector<PlacedWork>> placed(orders.size());
  for (std::size_t s = 0; s < orders.size(); ++s) {
    if (plan.schedule == Schedule::interleaved && !overlapped) {
      placed[s] = in_batches(orders[s]);
      continue;
    }
    for (std::size_t i = 0; i < orders[s].size(); ++i)
      placed[s].push_back({orders[s][i], overlapped && i > 0 ? i - 1 : i, i, i + (overlapped ? 2 : 1)});
  }
  return placed;
}

} // namespace foreplan

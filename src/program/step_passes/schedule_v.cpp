// Orders of the V-shaped schedules. A pattern repeats its block every six units, the time of a micro-batch's six passes
// when F, B and W of a chunk take one each. Run as it stands it leaves holes while the pipeline fills and drains. So every
// stage is run greedily: when it is free it runs, of the passes that could begin and that leave room in memory for all that
// the pattern has before them, the one that comes first in the pattern; and when there is none, a weight gradient.
#include "program/step_passes/step_passes.hpp"

#include <algorithm>
#include <array>

namespace foreplan {

namespace {

constexpr std::int64_t period = 6;
constexpr std::int64_t never = INT64_MAX;

// A micro-batch's passes on a stage, in the order in which it goes through them.
enum Pass : std::size_t { forward_down, forward_back, backward_down, backward_back };
constexpr std::size_t passes = 4;

Work work_of(std::size_t pass, std::int64_t j) {
  switch (pass) {
    case forward_down: return {SlotKind::forward, Chunk(0), MicroBatch(j)};
    case forward_back: return {SlotKind::forward, Chunk(1), MicroBatch(j)};
    case backward_down: return {SlotKind::backward, Chunk(1), MicroBatch(j)};
    default: return {SlotKind::backward, Chunk(0), MicroBatch(j)};
  }
}

bool is_forward(std::size_t pass) { return pass == forward_down || pass == forward_back; }

class Greedy {
public:
  Greedy(Plan const& plan, VPattern const& pattern)
      : micro_batches_(plan.micro_batches()), most_in_flight_(pattern.most_in_flight),
        stages_(static_cast<std::size_t>(plan.pp)) {
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      VBlock const& block = pattern.blocks[s];
      stages_[s].begin = {block.forward[0], block.forward[1], block.backward[1], block.backward[0]};
      for (auto& ended : stages_[s].ended)
        ended.assign(static_cast<std::size_t>(micro_batches_), never);
    }
  }

  std::vector<std::vector<Work>> run() {
    std::size_t const all = static_cast<std::size_t>(micro_batches_) * period;
    for (bool busy = true; busy; ++now_) {
      busy = false;
      for (std::size_t s = 0; s < stages_.size(); ++s) {
        run_next(s);
        busy = busy || stages_[s].order.size() < all;
      }
    }
    std::vector<std::vector<Work>> orders;
    for (StageRun& stage : stages_)
      orders.push_back(std::move(stage.order));
    return orders;
  }

private:
  struct StageRun {
    std::array<std::int64_t, passes> begin{};              // in the pattern, of micro-batch 0
    std::array<std::int64_t, passes> next{};               // micro-batch, by pass
    std::array<std::vector<std::int64_t>, passes> ended{}; // when, by pass and micro-batch
    std::vector<Work> order;
    std::vector<Work> weight_gradients; // that can run, from `first_left` on
    std::size_t first_left = 0;
    std::int64_t forwards_held = 0; // chunks between F and B
    [[nodiscard]] std::int64_t waiting() const {
      return std::ssize(weight_gradients) - static_cast<std::int64_t>(first_left);
    }
  };

  std::int64_t in_pattern(StageRun const& stage, std::size_t pass) const {
    return stage.begin[pass] + period * stage.next[pass];
  }

  // Ended by now on the stage before, and on this one the pass before.
  bool can_begin(std::size_t s, std::size_t pass) const {
    std::int64_t const j = stages_[s].next[pass];
    if (j >= micro_batches_)
      return false;
    auto const has_ended = [&](std::size_t stage, std::size_t of) {
      return stages_[stage].ended[of][static_cast<std::size_t>(j)] <= now_;
    };
    bool const goes_down = pass == forward_down || pass == backward_down;
    if (goes_down && s > 0 && !has_ended(s - 1, pass))
      return false;
    if (!goes_down && s + 1 < stages_.size() && !has_ended(s + 1, pass))
      return false;
    return pass == forward_down || has_ended(s, pass - 1);
  }

  // Whether a forward that is run now leaves room for what the pattern has before it.
  bool has_room(StageRun const& stage, std::size_t pass) const {
    if (!is_forward(pass))
      return true;
    std::int64_t held = stage.forwards_held + 1;
    std::array<std::int64_t, passes> next = stage.next;
    for (std::int64_t const own = in_pattern(stage, pass); held <= most_in_flight_;) {
      std::size_t first = passes;
      std::int64_t earliest = own;
      for (std::size_t other = 0; other < passes; ++other)
        if (std::int64_t const begin = stage.begin[other] + period * next[other];
            other != pass && next[other] < micro_batches_ && begin < earliest) {
          first = other;
          earliest = begin;
        }
      if (first == passes)
        return true;
      ++next[first];
      held += is_forward(first) ? 1 : -1; // a backward's weight gradient can follow it at once
    }
    return false;
  }

  void run_next(std::size_t s) {
    StageRun& stage = stages_[s];
    std::size_t best = passes;
    for (std::size_t pass = 0; pass < passes; ++pass)
      if (can_begin(s, pass) && has_room(stage, pass) &&
          (best == passes || in_pattern(stage, pass) < in_pattern(stage, best)))
        best = pass;
    bool const is_full = stage.forwards_held + stage.waiting() >= most_in_flight_;
    if (best == passes || (is_forward(best) && is_full))
      run_weight_gradient(stage);
    else
      run(stage, best);
  }

  static void run_weight_gradient(StageRun& stage) {
    if (stage.waiting() > 0)
      stage.order.push_back(stage.weight_gradients[stage.first_left++]);
  }

  void run(StageRun& stage, std::size_t pass) {
    std::int64_t const j = stage.next[pass]++;
    stage.ended[pass][static_cast<std::size_t>(j)] = now_ + 1;
    stage.order.push_back(work_of(pass, j));
    stage.forwards_held += is_forward(pass) ? 1 : -1;
    if (!is_forward(pass)) {
      Work work = stage.order.back();
      work.kind = SlotKind::weight_gradient;
      stage.weight_gradients.push_back(work);
    }
  }

  std::int64_t micro_batches_;
  std::int64_t most_in_flight_;
  std::int64_t now_ = 0;
  std::vector<StageRun> stages_;
};

} // namespace

std::vector<std::vector<Work>> schedule_v(Plan const& plan, VPattern const& pattern) {
  return Greedy(plan, pattern).run();
}

} // namespace foreplan

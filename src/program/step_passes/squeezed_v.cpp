// Orders of V-shaped schedules by their authors' way (Pipeline Parallelism with Controllable Memory, arXiv 2405.15362,
// appendix: squeezing): the pattern as it stands, with weight gradients in its free units; then, while the pipeline fills
// and drains, every pass in turn moves to the first free unit behind what it needs, as long as its stage holds no more
// than the pattern does.
#include "program/step_passes/step_passes.hpp"

#include <algorithm>
#include <array>
#include <tuple>

namespace foreplan {

namespace {

constexpr std::int64_t period = 6;

// A micro-batch's passes on a stage in the order in which it goes through them; then the stage's weight gradients.
enum Pass : std::size_t { forward_down, forward_back, backward_down, backward_back, weight_gradient };
constexpr std::size_t passes = 5;

bool is_forward(std::size_t pass) { return pass == forward_down || pass == forward_back; }
bool is_backward(std::size_t pass) { return pass == backward_down || pass == backward_back; }

struct StageTimes {
  std::array<std::vector<std::int64_t>, passes> begin; // units, by pass and micro-batch
  std::vector<bool> taken;                             // by unit
  std::vector<std::int64_t> held;                      // chunks of activations, by unit
};

std::vector<std::int64_t> backwards_of(StageTimes const& stage) {
  std::vector<std::int64_t> all;
  std::ranges::merge(stage.begin[backward_down], stage.begin[backward_back], std::back_inserter(all));
  return all;
}

// The first free unit behind each backward's.
void place_weight_gradients(StageTimes& stage) {
  std::vector<std::int64_t> const backwards = backwards_of(stage);
  auto const unit = [](std::int64_t time) { return static_cast<std::size_t>(time); };
  for (std::int64_t const backward : backwards) {
    std::int64_t time = backward + 1;
    if (!stage.begin[weight_gradient].empty())
      time = std::max(time, stage.begin[weight_gradient].back() + 1);
    while (stage.taken[unit(time)])
      ++time;
    stage.begin[weight_gradient].push_back(time);
    stage.taken[unit(time)] = true;
  }
}

void count_held(StageTimes& stage) {
  stage.held.assign(stage.taken.size(), 0);
  for (std::size_t pass : {forward_down, forward_back, weight_gradient})
    for (std::int64_t const time : stage.begin[pass])
      stage.held[static_cast<std::size_t>(time)] += is_forward(pass) ? 1 : -1;
  for (std::size_t t = 1; t < stage.held.size(); ++t)
    stage.held[t] += stage.held[t - 1];
}

class Squeezer {
public:
  Squeezer(Plan const& plan, VPattern const& pattern) : m_(plan.micro_batches()), most_(pattern.most_in_flight) {
    for (VBlock const& block : pattern.blocks) {
      StageTimes& stage = stages_.emplace_back();
      std::array const first{block.forward[0], block.forward[1], block.backward[1], block.backward[0]};
      std::int64_t const last = *std::ranges::max_element(first) + period * m_;
      stage.taken.assign(static_cast<std::size_t>(last + 2 * m_ + 1), false);
      for (std::size_t pass = 0; pass < first.size(); ++pass)
        for (std::int64_t j = 0; j < m_; ++j) {
          stage.begin[pass].push_back(first[pass] + period * j);
          stage.taken[static_cast<std::size_t>(first[pass] + period * j)] = true;
        }
      place_weight_gradients(stage);
      count_held(stage);
    }
  }

  std::vector<std::vector<Work>> run() {
    bool full = false, draining = false;
    for (auto const& [time, s, pass, j] : in_order()) {
      full = full || (pass == backward_back && s == 0);
      if (!full || draining)
        move(s, pass, static_cast<std::size_t>(j));
      draining = draining || (full && pass == forward_down && j == m_ - 1);
    }
    std::vector<std::vector<Work>> orders;
    for (StageTimes const& stage : stages_)
      orders.push_back(order_of(stage));
    return orders;
  }

private:
  using Item = std::tuple<std::int64_t, std::size_t, std::size_t, std::int64_t>; // begin, stage, pass, micro-batch

  std::vector<Item> in_order() const {
    std::vector<Item> items;
    for (std::size_t s = 0; s < stages_.size(); ++s)
      for (std::size_t pass = 0; pass < passes; ++pass)
        for (std::size_t j = 0; j < stages_[s].begin[pass].size(); ++j)
          items.emplace_back(stages_[s].begin[pass][j], s, pass, static_cast<std::int64_t>(j));
    std::ranges::sort(items);
    return items;
  }

  // The first unit in which nothing that the pass needs is missing.
  std::int64_t earliest(std::size_t s, std::size_t pass, std::size_t j) const {
    std::int64_t after = -1;
    auto const needs = [&](std::size_t stage, std::size_t of, std::size_t which) {
      after = std::max(after, stages_[stage].begin[of][which]);
    };
    if ((pass == forward_down || pass == backward_down) && s > 0)
      needs(s - 1, pass, j);
    if ((pass == forward_back || pass == backward_back) && s + 1 < stages_.size())
      needs(s + 1, pass, j);
    if (pass == weight_gradient)
      after = backwards_of(stages_[s])[j];
    else if (pass > 0)
      needs(s, pass - 1, j);
    if (j > 0)
      needs(s, pass, j - 1);
    return after + 1;
  }

  void move(std::size_t s, std::size_t pass, std::size_t j) {
    StageTimes& stage = stages_[s];
    std::int64_t& begin = stage.begin[pass][j];
    auto const unit = [&](std::int64_t time) { return stage.held.begin() + time; };
    for (std::int64_t time = earliest(s, pass, j); time < begin; ++time) {
      bool const fits = !is_forward(pass) || *std::max_element(unit(time), unit(begin)) < most_;
      if (stage.taken[static_cast<std::size_t>(time)] || !fits)
        continue;
      std::int64_t const change = is_forward(pass) ? 1 : pass == weight_gradient ? -1 : 0;
      std::for_each(unit(time), unit(begin), [&](std::int64_t& held) { held += change; });
      stage.taken[static_cast<std::size_t>(begin)] = false;
      stage.taken[static_cast<std::size_t>(time)] = true;
      begin = time;
      return;
    }
  }

  std::vector<Work> order_of(StageTimes const& stage) const {
    std::vector<std::tuple<std::int64_t, std::size_t, std::int64_t>> items; // begin, pass, micro-batch
    for (std::size_t pass = 0; pass < passes; ++pass)
      for (std::size_t j = 0; j < stage.begin[pass].size(); ++j)
        items.emplace_back(stage.begin[pass][j], pass, static_cast<std::int64_t>(j));
    std::ranges::sort(items);
    std::vector<Work> order, backwards;
    std::size_t next = 0;
    for (auto const& [time, pass, j] : items) {
      if (pass == weight_gradient) {
        order.push_back(backwards[next++]);
        order.back().kind = SlotKind::weight_gradient;
        continue;
      }
      order.push_back({is_backward(pass) ? SlotKind::backward : SlotKind::forward,
                       Chunk(pass == forward_back || pass == backward_down ? 1 : 0), MicroBatch(j)});
      if (is_backward(pass))
        backwards.push_back(order.back());
    }
    return order;
  }

  std::int64_t m_;
  std::int64_t most_;
  std::vector<StageTimes> stages_;
};

// Units from the first pass to the last.
std::int64_t length_of(Plan const& plan, std::vector<std::vector<Work>> const& orders) {
  std::int64_t last = 0;
  for (std::vector<std::int64_t> const& starts : unit_starts(plan, orders))
    last = std::max(last, starts.back() + 1);
  return last;
}

} // namespace

std::vector<std::vector<Work>> shorter_v(Plan const& plan, VPattern const& pattern) {
  std::vector<std::vector<Work>> greedy = schedule_v(plan, pattern), squeezed = Squeezer(plan, pattern).run();
  return length_of(plan, squeezed) < length_of(plan, greedy) ? squeezed : greedy;
}

} // namespace foreplan

// Bubbles of the schedules by hand algebra: the schedules' orders with fixed durations and free transfers, on the fast
// engine, against closed forms (notes: algorithms.md 7).
#include "engine/engine.hpp"
#include "program/step_passes/step_passes.hpp"
#include "tests/catch.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

using namespace foreplan;

namespace {

// Every stage runs its order; a slot waits for the slot of the neighbouring part, over a transfer of no time.
class FixedSchedule {
public:
  FixedSchedule(Plan plan, double forward, double backward) : plan_(std::move(plan)), durations_{forward, backward} {}

  double makespan(std::function<std::vector<Work>(Plan const&, Stage)> const& schedule) {
    program_.demands.push_back({.issue = {}, .lead = {}, .device = ComputeDemand{Seconds(durations_[0])}});
    program_.demands.push_back({.issue = {}, .lead = {}, .device = ComputeDemand{Seconds(durations_[1])}});
    program_.demands.push_back({.issue = {}, .lead = {}, .device = TransferDemand{}});
    program_.blocks = {{{Item{.demand = 0, .waits = {}}}}, {{Item{.demand = 1, .waits = {}}}}};
    for (int s = 0; s < plan_.pp; ++s)
      program_.classes.push_back({"stage " + std::to_string(s), 1, {}, {}});
    for (int s = 0; s < plan_.pp; ++s)
      add_stage(s, schedule(plan_, Stage(s)));
    return run_fast(program_).step.value();
  }

private:
  int part(int stage, Work const& work) const { return work.chunk.value() * plan_.pp + stage; }

  // Transfers of one direction between two stages have streams of their own: 1 + direction to send, 3 + to receive.
  std::int32_t transfer_block(int from, int to, int direction, bool sends) {
    auto const [found, is_new] = communicators_.try_emplace({from, to, direction}, 0);
    if (is_new) {
      found->second = static_cast<std::int32_t>(program_.communicators.size());
      program_.communicators.push_back({"channel", {from, to}});
    }
    auto const stream = static_cast<std::uint8_t>((sends ? 1 : 3) + direction);
    program_.blocks.push_back({{Item{.demand = 2, .communicator = found->second, .stream = stream, .waits = {}}}});
    return static_cast<std::int32_t>(program_.blocks.size()) - 1;
  }

  std::int32_t add_use(int stage, std::int32_t block, std::vector<std::int32_t> const& waits) {
    RankClass& own = program_.classes[static_cast<std::size_t>(stage)];
    own.uses.push_back({block, static_cast<std::int32_t>(own.waits.size()), static_cast<std::int32_t>(waits.size())});
    own.waits.insert(own.waits.end(), waits.begin(), waits.end());
    return static_cast<std::int32_t>(own.uses.size()) - 1;
  }

  void add_stage(int stage, std::vector<Work> const& order) {
    int const parts = plan_.pp * plan_.chunks;
    for (Work const& work : order) {
      bool const forward = work.kind == SlotKind::forward;
      int const own = part(stage, work), step = forward ? 1 : -1, direction = forward ? 0 : 1;
      std::vector<std::int32_t> waits;
      if (int const before = own - step; before >= 0 && before < parts && plan_.pp > 1)
        waits.push_back(add_use(stage, transfer_block(before % plan_.pp, stage, direction, false), {}));
      std::int32_t const slot = add_use(stage, forward ? 0 : 1, waits);
      if (int const after = own + step; after >= 0 && after < parts && plan_.pp > 1)
        add_use(stage, transfer_block(stage, after % plan_.pp, direction, true), {slot});
    }
  }

  Plan plan_;
  double durations_[2];
  FoldedProgram program_;
  std::map<std::tuple<int, int, int>, std::int32_t> communicators_;
};

Plan plan_of(int pp, int m, int chunks = 1) {
  Plan plan;
  plan.pp = pp;
  plan.chunks = chunks;
  plan.global_batch = m;
  plan.sequence_length = 1;
  return plan;
}

} // namespace

TEST_CASE("gpipe and 1f1b: m (F + B) + (p - 1) (F + B)") {
  // The first micro-batch reaches the last stage after (p - 1) F and its gradient the first after (p - 1) B more; every
  // stage has m (F + B) of its own work, and nothing else holds it up when transfers are free.
  for (int p : {1, 2, 3, 4, 8, 16})
    for (int m : {1, 2, 4, 8, 32}) {
      if (m < p)
        continue;
      INFO("p " << p << ", m " << m);
      double const F = 1, B = 2;
      CHECK(FixedSchedule(plan_of(p, m), F, B).makespan(gpipe) == Approx((m + p - 1) * (F + B)).epsilon(1e-12));
      CHECK(FixedSchedule(plan_of(p, m), F, B).makespan(one_f_one_b) == Approx((m + p - 1) * (F + B)).epsilon(1e-12));
    }
}

TEST_CASE("interleaved 1f1b: the bubble is v times smaller") {
  // Chunks of F / v and B / v: the pipeline fills and drains in (p - 1) steps of a chunk, not of a whole stage.
  for (int p : {2, 3, 4, 8})
    for (int v : {2, 3, 4})
      for (int groups : {1, 2, 4}) {
        int const m = p * groups;
        INFO("p " << p << ", v " << v << ", m " << m);
        double const F = 1, B = 2;
        CHECK(FixedSchedule(plan_of(p, m, v), F / v, B / v).makespan(interleaved) ==
              Approx(m * (F + B) + (p - 1) * (F + B) / v).epsilon(1e-12));
      }
}

// Bubbles of the schedules by hand algebra: the schedules' orders with fixed durations and free transfers, on the fast
// engine, against closed forms (notes: algorithms.md 7).
#include "engine/engine.hpp"
#include "program/step_passes/step_passes.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

using namespace foreplan;

namespace {

// Every stage runs its order; a slot waits for the slot of the neighbouring part, over a transfer of no time.
class FixedSchedule {
public:
  FixedSchedule(Plan plan, double forward, double backward, double weight_gradient = 0)
      : plan_(std::move(plan)), durations_{forward, backward, weight_gradient} {
    for (double duration : durations_) {
      program_.blocks.push_back({{Item{.demand = static_cast<std::int32_t>(program_.demands.size()), .waits = {}}}});
      program_.demands.push_back({.issue = {}, .lead = {}, .device = ComputeDemand{Seconds(duration)}});
    }
    program_.demands.push_back({.issue = {}, .lead = {}, .device = TransferDemand{}});
    for (int s = 0; s < plan_.pp; ++s)
      program_.classes.push_back({"stage " + std::to_string(s), 1, {}, {}});
    std::vector<std::vector<Work>> const orders = schedule(plan_);
    for (int s = 0; s < plan_.pp; ++s)
      add_stage(s, orders[static_cast<std::size_t>(s)]);
    timeline_ = run_fast(program_);
  }

  [[nodiscard]] double makespan() const { return timeline_.step.value(); }

  // The longest time that a stage spends between its first and its last pass, less what its passes take.
  [[nodiscard]] double bubble_of_stage() const {
    double longest = 0;
    for (auto const& entries : timeline_.classes) {
      double first = 1e30, last = 0, busy = 0;
      for (TimelineEntry const& ran : entries)
        if (ran.end > ran.start) {
          first = std::min(first, ran.start);
          last = std::max(last, ran.end);
          busy += ran.end - ran.start;
        }
      longest = std::max(longest, last - first - busy);
    }
    return longest;
  }

private:
  // Between two stages every chunk and direction has streams of its own, so that no transfer waits for another: 1 + way
  // to send, 6 + way to receive.
  std::int32_t transfer_block(int from, int to, int way, bool sends) {
    auto const [found, is_new] = communicators_.try_emplace({from, to, way}, 0);
    if (is_new) {
      found->second = static_cast<std::int32_t>(program_.communicators.size());
      program_.communicators.push_back({"channel", {from, to}});
    }
    auto const stream = static_cast<std::uint8_t>((sends ? 1 : 5) + way);
    program_.blocks.push_back({{Item{.demand = 3, .communicator = found->second, .stream = stream, .waits = {}}}});
    return static_cast<std::int32_t>(program_.blocks.size()) - 1;
  }

  std::int32_t add_use(int stage, std::int32_t block, std::vector<std::int32_t> const& waits) {
    RankClass& own = program_.classes[static_cast<std::size_t>(stage)];
    own.uses.push_back({block, static_cast<std::int32_t>(own.waits.size()), static_cast<std::int32_t>(waits.size())});
    own.waits.insert(own.waits.end(), waits.begin(), waits.end());
    return static_cast<std::int32_t>(own.uses.size()) - 1;
  }

  // The stage of a neighbouring part, or -1: nothing is sent.
  int other_stage(int stage, int part) const {
    if (part < 0 || part >= plan_.pp * plan_.chunks)
      return -1;
    int const other = stage_of_part(plan_, part).value();
    return other == stage ? -1 : other;
  }

  void add_stage(int stage, std::vector<Work> const& order) {
    for (Work const& work : order) {
      auto const block = static_cast<std::int32_t>(work.kind);
      if (work.kind == SlotKind::weight_gradient) {
        add_use(stage, block, {});
        continue;
      }
      bool const forward = work.kind == SlotKind::forward;
      int const own = part_of(plan_, Stage(stage), work.chunk), step = forward ? 1 : -1;
      bool const goes_back = is_v_shaped(plan_.schedule) && work.chunk == Chunk(1);
      int const way = (forward ? 0 : 1) + (goes_back ? 2 : 0);
      std::vector<std::int32_t> waits;
      if (int const before = other_stage(stage, own - step); before >= 0)
        waits.push_back(add_use(stage, transfer_block(before, stage, way, false), {}));
      std::int32_t const slot = add_use(stage, block, waits);
      if (int const after = other_stage(stage, own + step); after >= 0)
        add_use(stage, transfer_block(stage, after, way, true), {slot});
    }
  }

  Plan plan_;
  std::array<double, 3> durations_;
  FoldedProgram program_;
  Timeline timeline_;
  std::map<std::tuple<int, int, int>, std::int32_t> communicators_;
};

Plan plan_of(Schedule schedule, int pp, int m, int chunks = 1) {
  Plan plan;
  plan.schedule = schedule;
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
      for (Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b})
        CHECK(FixedSchedule(plan_of(schedule, p, m), F, B).makespan() == Approx((m + p - 1) * (F + B)).epsilon(1e-12));
    }
}

TEST_CASE("interleaved 1f1b: the bubble is v times smaller") {
  // Chunks of F / v and B / v: the pipeline fills and drains in (p - 1) steps of a chunk, not of a whole stage. Larger
  // groups of micro-batches put more in flight and leave the bubble as it is.
  for (int p : {2, 3, 4, 8})
    for (int v : {2, 3, 4})
      for (int groups : {1, 2, 4})
        for (int more : {0, 1, 3}) {
          int const m = (p + more) * groups;
          INFO("p " << p << ", v " << v << ", m " << m << ", group of " << p + more);
          double const F = 1, B = 2;
          Plan plan = plan_of(Schedule::interleaved, p, m, v);
          plan.micro_batch_group = more == 0 ? 0 : p + more;
          CHECK(FixedSchedule(plan, F / v, B / v).makespan() ==
                Approx(m * (F + B) + (p - 1) * (F + B) / v).epsilon(1e-12));
        }
}

TEST_CASE("zb-h1: m (F + B + W) + (p - 1) (F + B - W)") {
  // The last stage begins after (p - 1) F, and as it puts W off by p - 1 micro-batches it has done m (F + B) and m - p W
  // when its last B ends; then the gradient goes down in (p - 1) B, and stage 0, which puts nothing off, ends with one W.
  for (auto const& [F, B, W] : {std::array{1.0, 1.0, 1.0}, std::array{1.0, 1.1, 0.9}, std::array{1.0, 1.4, 0.8}})
    for (int p : {2, 3, 4, 8})
      for (int m : {p, 2 * p, 4 * p}) {
        INFO("p " << p << ", m " << m << ", F " << F << ", B " << B << ", W " << W);
        CHECK(FixedSchedule(plan_of(Schedule::zb_h1, p, m), F, B, W).makespan() ==
              Approx(m * (F + B + W) + (p - 1) * (F + B - W)).epsilon(1e-12));
      }
}

TEST_CASE("zb-h2: no stage pauses, and the step takes (p - 1) F longer than the work") {
  // Stage 0 has 2 p - 1 forwards in front of its first B, which comes back after p F and (p - 1) B: just then. Every
  // stage works without a pause from its first F, which stage i begins after i F.
  for (int p : {2, 3, 4, 8})
    for (int m : {2 * p - 1, 2 * p, 3 * p, 6 * p}) {
      INFO("p " << p << ", m " << m);
      FixedSchedule const run(plan_of(Schedule::zb_h2, p, m), 1, 1, 1);
      CHECK(run.bubble_of_stage() == Approx(0).margin(1e-9));
      CHECK(run.makespan() == Approx(3 * m + p - 1).epsilon(1e-12));
    }
}

TEST_CASE("zb-v: the step takes (p - 1) chunks' F longer than the work") {
  // In units of a chunk's F = B = W: the last stage begins after p - 1 and has 6 m to do, without a pause.
  for (int p : {2, 3, 4, 5, 6, 7, 8, 12, 16})
    for (int m : {p, 2 * p, 3 * p, 6 * p}) {
      INFO("p " << p << ", m " << m);
      CHECK(FixedSchedule(plan_of(Schedule::zb_v, p, m, 2), 1, 1, 1).makespan() ==
            Approx(6 * m + p - 1).epsilon(1e-12));
    }
}

TEST_CASE("v-half and v-min: about half and two thirds of 1f1b's bubble") {
  // In units of a chunk's F = B = W. 1F1B's bubble is (p - 1) 3 stages = 6 (p - 1) chunks. The authors' own scheduler
  // reaches 5/18 and 17/42 of it with V-Half at p = 4 and 8, and 11/18 and 27/42 with V-Min (notes: algorithms.md 7).
  auto const bubble = [](Schedule schedule, int p, int m) {
    return FixedSchedule(plan_of(schedule, p, m, 2), 1, 1, 1).makespan() - 6 * m;
  };
  for (int rounds : {1, 2, 3, 6}) {
    CHECK(bubble(Schedule::v_half, 4, 4 * rounds) == Approx(6 * 3 * 5 / 18.0));
    CHECK(bubble(Schedule::v_half, 8, 8 * rounds) == Approx(6 * 7 * 17 / 42.0));
    CHECK(bubble(Schedule::v_min, 4, 4 * rounds) == Approx(6 * 3 * 11 / 18.0));
    CHECK(bubble(Schedule::v_min, 8, 8 * rounds) == Approx(6 * 7 * 27 / 42.0));
    for (int p : {2, 3, 4, 5, 6, 7, 8, 12, 16}) {
      INFO("p " << p << ", m " << p * rounds);
      CHECK(bubble(Schedule::v_half, p, p * rounds) <= 6 * (p - 1) / 2.0);
      CHECK(bubble(Schedule::v_min, p, p * rounds) <= 6 * (p - 1) * 0.66);
    }
  }
}

TEST_CASE("dualpipe-v: at most (p - 1) (F&B + B - 3 W)") {
  // In units of a chunk's F = W = 1, full backward B = 2, F&B = 3; p stages are 2 p parts. A forward and the backward
  // behind it begin what follows on other stages earlier than the authors' overlapped pair does.
  for (int p : {2, 4, 8})
    for (int m : {2 * p, 2 * p + 2, 4 * p}) {
      INFO("p " << p << ", m " << m);
      double const makespan = FixedSchedule(plan_of(Schedule::dualpipe_v, p, m, 2), 1, 1, 1).makespan();
      CHECK(makespan <= 6 * m + 2 * (p - 1) + 1e-9);
      CHECK(makespan >= 6 * m + p - 1 - 1e-9); // what the last stage waits for its first forward
    }
}

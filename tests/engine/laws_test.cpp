// What both engines must give on programs small enough for hand algebra.
#include "engine/engine.hpp"
#include "tests/catch.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <thread>

using namespace foreplan;

namespace {

// Programs by hand: every item is a block of its own.
struct Build {
  FoldedProgram program;

  std::int32_t link(double capacity) {
    program.links.push_back({"link", BytesPerSecond(capacity)});
    return static_cast<std::int32_t>(program.links.size()) - 1;
  }
  std::int32_t rank_class(std::string const& name) {
    program.classes.push_back({name, 1, {}, {}});
    return static_cast<std::int32_t>(program.classes.size()) - 1;
  }
  std::int32_t communicator(std::vector<std::int32_t> members) {
    program.communicators.push_back({"communicator", std::move(members)});
    return static_cast<std::int32_t>(program.communicators.size()) - 1;
  }
  std::int32_t demand(Demand made) {
    program.demands.push_back(std::move(made));
    return static_cast<std::int32_t>(program.demands.size()) - 1;
  }
  std::int32_t compute(double seconds, double sm_share = 0, double memory_bandwidth_share = 0) {
    Demand made;
    made.device = ComputeDemand{Seconds(seconds)};
    made.sm_share = sm_share;
    made.memory_bandwidth_share = memory_bandwidth_share;
    return demand(made);
  }
  std::int32_t transfer(std::vector<Phase> phases, double sm_share = 0) {
    Demand made;
    made.device = TransferDemand{std::move(phases)};
    made.sm_share = sm_share;
    return demand(made);
  }
  // Returns the use's position, for later waits.
  std::int32_t use(std::int32_t in_class, Item item, std::vector<std::int32_t> const& waits = {}) {
    RankClass& target = program.classes[static_cast<std::size_t>(in_class)];
    target.uses.push_back({static_cast<std::int32_t>(program.blocks.size()),
                           static_cast<std::int32_t>(target.waits.size()), static_cast<std::int32_t>(waits.size())});
    target.waits.insert(target.waits.end(), waits.begin(), waits.end());
    program.blocks.push_back({{std::move(item)}});
    return static_cast<std::int32_t>(target.uses.size()) - 1;
  }
  std::int32_t run(std::int32_t in_class, std::int32_t item_demand, std::uint8_t stream,
                   std::vector<std::int32_t> const& waits = {}, std::int32_t communicator_index = -1) {
    return use(in_class, {.demand = item_demand, .communicator = communicator_index, .stream = stream, .waits = {}},
               waits);
  }
};

Phase phase(double latency, std::vector<Flow> flows) { return {Seconds(latency), std::move(flows)}; }
Flow flow(double bytes, double cap, std::vector<LinkUse> links) {
  return {Bytes(bytes), BytesPerSecond(cap), std::move(links)};
}
constexpr double no_cap = std::numeric_limits<double>::infinity();

TimelineEntry entry_of(Timeline const& timeline, std::int32_t rank_class, std::int32_t use) {
  for (TimelineEntry const& entry : timeline.classes[static_cast<std::size_t>(rank_class)])
    if (entry.use == use)
      return entry;
  return {-1, -1, -1, -1, -1};
}

// Ends of the uses of a class, from both engines.
void check_ends(FoldedProgram const& program, std::int32_t rank_class, std::vector<double> const& expected) {
  for (auto engine : {run_fast, run_simgrid}) {
    Timeline const timeline = engine(program, {});
    for (std::size_t u = 0; u < expected.size(); ++u) {
      INFO((engine == run_fast ? "fast" : "SimGrid") << " class " << rank_class << " use " << u);
      CHECK(std::abs(entry_of(timeline, rank_class, static_cast<std::int32_t>(u)).end - expected[u]) < 1e-9);
    }
  }
}

} // namespace

TEST_CASE("a demand alone takes exactly its time") {
  Build b;
  auto const c = b.rank_class("rank");
  auto const l = b.link(100);
  auto const k = b.communicator({c});
  // 3 us + 5000 B / 80 B/s, then 0.5 s + max(200 / 50, 300 / (100 / 2)): 62.500003 + 6.5
  auto const t = b.transfer(
      {phase(3e-6, {flow(5000, 80, {{l, 1}})}), phase(0.5, {flow(200, 50, {}), flow(300, no_cap, {{l, 2}})})});
  b.run(c, t, 1, {}, k);
  b.run(c, b.compute(1.25), 0, {0}); // after it
  check_ends(b.program, c, {69.000003, 70.250003});
}

TEST_CASE("a second flow behind the same first link shares its other links too") {
  // Four hosts with links up and down of 100 units/s, latency 0.001 s. g: 3 -> 2, 1000 units, is alone until f1: 0 ->
  // 2 and f2: 0 -> 1 of 1000 units start together at t = 1 and flow from 1.001. f1 and f2 share up 0, f1 and g share
  // down 2: 50 each. g has 900 left at 1.001: 18 s more, 19.001. f1 and f2: 20 s, 21.001.
  Build b;
  std::vector<std::int32_t> up, down, ranks;
  for (int h = 0; h < 4; ++h) {
    up.push_back(b.link(100));
    down.push_back(b.link(100));
    ranks.push_back(b.rank_class("host"));
  }
  auto const send = [&](std::size_t from, std::size_t to) {
    return b.transfer({phase(0.001, {flow(1000, no_cap, {{up[from], 1}, {down[to], 1}})})});
  };
  auto const wait = b.compute(1);
  b.run(ranks[3], send(3, 2), 1, {}, b.communicator({ranks[3]}));
  auto const first = b.run(ranks[0], wait, 0);
  b.run(ranks[0], send(0, 2), 1, {first}, b.communicator({ranks[0]}));
  b.run(ranks[0], send(0, 1), 2, {first}, b.communicator({ranks[0]}));
  check_ends(b.program, ranks[3], {19.001});
  check_ends(b.program, ranks[0], {1, 21.001, 21.001});
}

TEST_CASE("multiplicities weigh: 2 r + r = 100") {
  // r = 100 / 3 each; after the first's 100 bytes (3 s) the other has 100 left at 100: 4 s.
  Build b;
  auto const c = b.rank_class("rank");
  auto const l = b.link(100);
  b.run(c, b.transfer({phase(0, {flow(100, no_cap, {{l, 2}})})}), 1, {}, b.communicator({c}));
  b.run(c, b.transfer({phase(0, {flow(200, no_cap, {{l, 1}})})}), 2, {}, b.communicator({c}));
  check_ends(b.program, c, {3, 4});
}

TEST_CASE("shares do not depend on latencies") {
  // 1 GB each on 450 GB/s, latencies 2 and 11 us. The first moves 9 us * 450 GB/s = 4.05 MB alone; then both have
  // 225 GB/s until its other 995.95 MB are through; the second has 4.05 MB left at 450 GB/s: 9 us more.
  Build b;
  auto const c = b.rank_class("rank");
  auto const l = b.link(450e9);
  b.run(c, b.transfer({phase(2e-6, {flow(1e9, no_cap, {{l, 1}})})}), 1, {}, b.communicator({c}));
  b.run(c, b.transfer({phase(11e-6, {flow(1e9, no_cap, {{l, 1}})})}), 2, {}, b.communicator({c}));
  check_ends(b.program, c, {11e-6 + 995.95e6 / 225e9, 11e-6 + 995.95e6 / 225e9 + 9e-6});
}

TEST_CASE("a capped flow leaves its share to the others") {
  // Caps 10 and none on a link of 100: 10 and 90. 90 bytes at 90: 1 s; 40 bytes at 10: 4 s.
  Build b;
  auto const c = b.rank_class("rank");
  auto const l = b.link(100);
  b.run(c, b.transfer({phase(0, {flow(40, 10, {{l, 1}})})}), 1, {}, b.communicator({c}));
  b.run(c, b.transfer({phase(0, {flow(90, no_cap, {{l, 1}})})}), 2, {}, b.communicator({c}));
  check_ends(b.program, c, {4, 1});
}

TEST_CASE("a transfer slows what runs beside it, and is slowed by it") {
  // Compute of 10 s; beside it from 0 a transfer of 15 % of the SMs whose flow is 400 bytes at 100 B/s. The compute
  // takes 20 % of the SMs from the transfer: 80 B/s -> 5 s. In 5 s the compute does 4.25 s of work, so it ends at
  // 10.75.
  Build b;
  auto const c = b.rank_class("rank");
  b.run(c, b.compute(10, 0.2), 0);
  b.run(c, b.transfer({phase(0, {flow(400, 100, {})})}, 0.15), 1, {}, b.communicator({c}));
  check_ends(b.program, c, {10.75, 5});
}

TEST_CASE("memory bandwidth beyond the whole slows all alike, latencies not") {
  // 0.8 + 0.8: speed 1 / 1.6. The first's 2 s take 3.2 s; the second has done 2 of 3 s, ends at 4.2.
  Build b;
  auto const c = b.rank_class("rank");
  b.run(c, b.compute(2, 0, 0.8), 0);
  b.run(c, b.compute(3, 0, 0.8), 1);
  check_ends(b.program, c, {3.2, 4.2});
  // A latency of 1 s beside a compute that leaves half of the SMs: 1 s, then 50 bytes at 100 * 0.5.
  Build d;
  auto const e = d.rank_class("rank");
  d.run(e, d.compute(10, 0.5), 0);
  d.run(e, d.transfer({phase(1, {flow(50, 100, {})})}), 1, {}, d.communicator({e}));
  check_ends(d.program, e, {10, 2});
}

TEST_CASE("a transfer has the speed of its slowest member") {
  // One member's device leaves 0.5: 100 bytes at 100 * 0.5.
  Build b;
  auto const fast = b.rank_class("fast");
  auto const slow = b.rank_class("slow");
  auto const k = b.communicator({fast, slow});
  auto const t = b.transfer({phase(0, {flow(100, 100, {})})});
  b.run(slow, b.compute(10, 0.5), 0);
  b.run(fast, t, 1, {}, k);
  b.run(slow, t, 1, {}, k);
  check_ends(b.program, fast, {2});
}

TEST_CASE("too many shares slow an item to 1 %, never stop it") {
  Build b;
  auto const c = b.rank_class("rank");
  b.run(c, b.compute(1, 1.5), 0); // the other has 0: speed 1
  b.run(c, b.compute(1), 1);      // 1 s at 0.01 beside the first: 0.01 done, the rest alone: 1.99
  check_ends(b.program, c, {1, 1.99});
}

TEST_CASE("a transfer starts when its last member has come") {
  Build b;
  auto const early = b.rank_class("early");
  auto const late = b.rank_class("late");
  auto const k = b.communicator({early, late});
  auto const t = b.transfer({phase(0.5, {flow(100, 100, {})})});
  b.run(early, t, 1, {}, k);
  auto const work = b.run(late, b.compute(2), 0);
  b.run(late, t, 1, {work}, k);
  check_ends(b.program, early, {3.5});
  for (auto engine : {run_fast, run_simgrid}) {
    Timeline const timeline = engine(b.program, {});
    CHECK(entry_of(timeline, early, 0).arrival == 0);
    CHECK(entry_of(timeline, early, 0).start == Approx(2).epsilon(1e-12));
    CHECK(entry_of(timeline, late, 1).arrival == Approx(2).epsilon(1e-12));
    CHECK(timeline.items == 3);
    CHECK(timeline.step.value() == Approx(3.5).epsilon(1e-12));
  }
}

TEST_CASE("the host issues in order, at its own pace, and waits at sync points") {
  // Issue 1 s each. Kernels of 0.1 s: ends 1.1, 2.1 (host-bound). The third is a sync item of 5 s: starts at 3, ends
  // at 8; then the host goes on: the fourth is issued at 9, ends at 9.1.
  Build b;
  auto const c = b.rank_class("rank");
  auto const kernel = [&](double seconds, double lead) {
    Demand made;
    made.issue = Seconds(1);
    made.lead = Seconds(lead);
    made.device = ComputeDemand{Seconds(seconds)};
    return b.demand(made);
  };
  b.run(c, kernel(0.1, 1), 0);
  b.run(c, kernel(0.1, 1), 0);
  b.use(c, {.demand = kernel(5, 1), .stream = 0, .host_sync = true, .waits = {}});
  b.run(c, kernel(0.1, 1), 1);
  check_ends(b.program, c, {1.1, 2.1, 8, 9.1});
  // A lead shorter than the issue (a segment): 0.25 s after its issue began.
  Build d;
  auto const e = d.rank_class("rank");
  Demand segment;
  segment.issue = Seconds(1);
  segment.lead = Seconds(0.25);
  segment.device = ComputeDemand{Seconds(0.5)};
  auto const s = d.demand(segment);
  d.run(e, s, 0);
  d.run(e, s, 0);
  check_ends(d.program, e, {0.75, 1.75});
}

TEST_CASE("waits inside a block, and for its entry") {
  // Before the block: compute of 2 s. The block: item 0 on stream 1 waits for the entry (2 -> 3); item 1 on stream 2
  // waits for nothing (0 -> 1); item 2 on the compute stream waits for item 0 (3 -> 4). A second use follows: 4 -> 5,
  // 1 -> 2, 5 -> 6.
  Build b;
  auto const c = b.rank_class("rank");
  auto const second = b.compute(1);
  b.run(c, b.compute(2), compute_stream);
  Block block;
  block.items.push_back({.demand = second, .stream = 1, .waits = {wait_for_entry}});
  block.items.push_back({.demand = second, .stream = 2, .waits = {}});
  block.items.push_back({.demand = second, .stream = compute_stream, .waits = {0}});
  auto const number = static_cast<std::int32_t>(b.program.blocks.size());
  b.program.blocks.push_back(block);
  b.program.classes[0].uses.push_back({number, 0, 0});
  b.program.classes[0].uses.push_back({number, 0, 0});
  std::vector<std::vector<double>> const expected = {{2}, {3, 1, 4}, {5, 2, 6}};
  for (auto engine : {run_fast, run_simgrid}) {
    Timeline const timeline = engine(b.program, {});
    for (TimelineEntry const& entry : timeline.classes[0]) {
      double const end = expected[static_cast<std::size_t>(entry.use)][static_cast<std::size_t>(entry.item)];
      CHECK(entry.end == Approx(end).epsilon(1e-12));
    }
  }
}

TEST_CASE("items of no time end the moment they start") {
  Build b;
  auto const c = b.rank_class("rank");
  auto const k = b.communicator({c});
  auto const first = b.run(c, b.compute(0), 0);
  auto const second = b.run(c, b.transfer({}), 1, {first}, k);
  auto const third = b.run(c, b.transfer({phase(0, {}), phase(0, {})}), 1, {second}, k);
  b.run(c, b.compute(0, 1), 0, {third});
  check_ends(b.program, c, {0, 0, 0, 0});
  CHECK(run_fast({}).items == 0);
  CHECK(run_simgrid({}).items == 0);
}

TEST_CASE("a deadlock is an error that names the stuck items") {
  // Both stages send before they receive, on one stream each: each waits for the other.
  Build b;
  auto const x = b.rank_class("stage 0");
  auto const y = b.rank_class("stage 1");
  auto const forth = b.communicator({x, y});
  auto const back = b.communicator({y, x});
  auto const t = b.transfer({phase(0, {flow(1, 1, {})})});
  b.run(x, b.compute(1), 0);
  b.run(x, t, 1, {}, forth);
  b.run(x, t, 1, {}, back);
  b.run(y, t, 1, {}, back);
  b.run(y, t, 1, {}, forth);
  for (auto engine : {run_fast, run_simgrid}) {
    std::string text;
    try {
      engine(b.program, {});
    } catch (std::runtime_error const& error) {
      text = error.what();
    }
    CHECK(text.find("class 'stage 0' stream 1: use 1 item 0") != std::string::npos);
    CHECK(text.find("class 'stage 1' stream 1: use 0 item 0") != std::string::npos);
    CHECK(text.find("stream 0") == std::string::npos);
  }
}

TEST_CASE("malformed programs are refused") {
  Build good;
  auto const c = good.rank_class("rank");
  auto const l = good.link(100);
  auto const k = good.communicator({c});
  good.run(c, good.compute(1), 0);
  good.run(c, good.transfer({phase(0, {flow(1, 1, {{l, 1}})})}), 1, {0}, k);
  CHECK_NOTHROW(run_fast(good.program));
  auto const refused = [&](auto&& spoil) {
    FoldedProgram program = good.program;
    spoil(program);
    CHECK_THROWS_AS(run_fast(program), std::invalid_argument);
  };
  refused([](FoldedProgram& p) { p.blocks[0].items[0].demand = 7; });
  refused([](FoldedProgram& p) { p.blocks[0].items[0].stream = stream_limit; });
  refused([](FoldedProgram& p) { p.blocks[0].items[0].waits = {0}; });
  refused([](FoldedProgram& p) { p.blocks[1].items[0].communicator = -1; });
  refused([](FoldedProgram& p) {
    p.blocks[0].items.push_back(p.blocks[0].items[0]), p.blocks[0].items[0].host_sync = true;
  });
  refused([](FoldedProgram& p) { p.classes[0].waits = {1}; });
  refused([](FoldedProgram& p) { p.classes[0].uses[0].block = -1; });
  refused([](FoldedProgram& p) { p.classes.push_back(p.classes[0]); }); // enters a communicator it is no member of
  refused([](FoldedProgram& p) { p.links[0].capacity = BytesPerSecond(0); });
  refused([](FoldedProgram& p) { p.communicators[0].members = {5}; });
  refused([](FoldedProgram& p) { p.demands[0].sm_share = -1; });
  refused([](FoldedProgram& p) { std::get<TransferDemand>(p.demands[1].device).phases[0].flows[0].bytes = Bytes(0); });
  refused([](FoldedProgram& p) {
    std::get<TransferDemand>(p.demands[1].device).phases[0].flows[0].links = {{0, 1}, {0, 1}};
  });
}

TEST_CASE("the fast engine runs on any number of threads, with the same bytes") {
  Build b;
  auto const c = b.rank_class("rank");
  auto const l = b.link(100);
  auto const k = b.communicator({c});
  auto const kernel = b.compute(0.1, 0.1, 0.6);
  auto const t = b.transfer({phase(1e-3, {flow(13, no_cap, {{l, 1}})})}, 0.2);
  for (int i = 0; i < 2000; ++i) {
    b.run(c, kernel, 0);
    b.run(c, t, 1, {2 * i}, k);
  }
  Timeline const expected = run_fast(b.program);
  std::vector<double> steps(4);
  std::vector<std::thread> threads;
  for (double& step : steps)
    threads.emplace_back([&] { step = run_fast(b.program, {.keep_entries = false}).step.value(); });
  for (std::thread& thread : threads)
    thread.join();
  for (double step : steps)
    CHECK(step == expected.step.value());
  CHECK(run_fast(b.program, {.keep_entries = false}).classes[0].empty());
}

// A ring collective as one fluid transfer against the same ring as point-to-point steps: equal alone, and under
// contention within the figures of the design notes (ring all-reduce, 64 ranks, B = 50 GB/s, alpha = 2 us; every rank
// has a link up and a link down to a switch).
#include "engine/engine.hpp"
#include "engine/expand.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <numeric>

using namespace foreplan;

namespace {

constexpr double bandwidth = 50e9;
constexpr double alpha = 2e-6;
// Streams of a rank: two collectives, and two a collective for its steps.
constexpr std::uint8_t first_stream = 1;
constexpr std::uint8_t second_stream = 4;

// Link up of rank r is 2r, down is 2r + 1.
FoldedProgram star(int ranks) {
  FoldedProgram program;
  for (int r = 0; r < ranks; ++r) {
    program.links.push_back({"up", BytesPerSecond(bandwidth)});
    program.links.push_back({"down", BytesPerSecond(bandwidth)});
    program.classes.push_back({"rank " + std::to_string(r), 1, {}, {}});
  }
  return program;
}

Ring ring_of(int ranks, int stride, double bytes, std::uint8_t stream) {
  Ring ring;
  for (int r = 0; r < ranks; r += stride) {
    ring.members.push_back(r);
    ring.to_next.push_back({{2 * r, 1}, {2 * ((r + stride) % ranks) + 1, 1}});
  }
  ring.bytes = Bytes(bytes);
  ring.rounds = 2 * (ranks / stride - 1);
  ring.latency = Seconds(alpha);
  ring.rate_cap = BytesPerSecond(bandwidth);
  ring.stream = stream;
  ring.send_stream = static_cast<std::uint8_t>(stream + 1);
  ring.receive_stream = static_cast<std::uint8_t>(stream + 2);
  return ring;
}

std::int32_t add_demand(FoldedProgram& program, std::variant<ComputeDemand, TransferDemand> device) {
  program.demands.emplace_back();
  program.demands.back().device = std::move(device);
  return static_cast<std::int32_t>(program.demands.size()) - 1;
}

void use(FoldedProgram& program, std::int32_t rank_class, Block block) {
  program.classes[static_cast<std::size_t>(rank_class)].uses.push_back(
      {static_cast<std::int32_t>(program.blocks.size()), 0, 0});
  program.blocks.push_back(std::move(block));
}

// Adds the ring after `delay` seconds, in one form or the other.
void add_ring(FoldedProgram& program, Ring const& ring, bool expand, double delay) {
  std::int32_t const wait = add_demand(program, ComputeDemand{Seconds(delay)});
  std::int32_t const fluid = add_demand(program, fluid_ring(ring));
  RingSteps steps;
  auto const whole = static_cast<std::int32_t>(program.communicators.size());
  if (expand)
    steps = add_ring_steps(program, ring);
  else
    program.communicators.push_back({"ring", ring.members});
  for (std::size_t m = 0; m < ring.members.size(); ++m) {
    Block block;
    block.items.push_back({.demand = wait, .stream = ring.stream, .waits = {}});
    if (expand)
      append_ring_steps(block, ring, steps, m, {0});
    else
      block.items.push_back({.demand = fluid, .communicator = whole, .stream = ring.stream, .waits = {}});
    use(program, ring.members[m], block);
  }
}

// A flow over the link up of rank 0.
void add_background(FoldedProgram& program, double bytes) {
  Flow const flow{Bytes(bytes), BytesPerSecond(bandwidth), {{0, 1}}};
  std::int32_t const demand = add_demand(program, TransferDemand{{{Seconds(alpha), {flow}}}});
  program.communicators.push_back({"background", {0}});
  auto const communicator = static_cast<std::int32_t>(program.communicators.size()) - 1;
  use(program, 0, {{{.demand = demand, .communicator = communicator, .stream = second_stream, .waits = {}}}});
}

// Milliseconds at which all items of the stream have ended.
double end_of(FoldedProgram const& program, Timeline const& timeline, std::uint8_t stream) {
  double end = 0;
  for (std::size_t c = 0; c < program.classes.size(); ++c)
    for (TimelineEntry const& entry : timeline.classes[c]) {
      auto const block = static_cast<std::size_t>(program.classes[c].uses[static_cast<std::size_t>(entry.use)].block);
      if (program.blocks[block].items[static_cast<std::size_t>(entry.item)].stream == stream)
        end = std::max(end, entry.end);
    }
  return end * 1e3;
}

struct Ends {
  double first = 0;
  double second = 0;
};

Ends ends(FoldedProgram const& program, Timeline (*engine)(FoldedProgram const&, RunOptions)) {
  Timeline const timeline = engine(program, {});
  return {end_of(program, timeline, first_stream), end_of(program, timeline, second_stream)};
}

constexpr int ranks = 64;

double alone_seconds(double bytes) { return 2 * (ranks - 1) * (alpha + bytes / (ranks * bandwidth)); }

enum class Case { equal_rings, late_half_ring, background, every_other_rank };

FoldedProgram contention(Case which, double bytes, bool expand) {
  FoldedProgram program = star(ranks);
  add_ring(program, ring_of(ranks, 1, bytes, first_stream), expand, 0);
  switch (which) {
    case Case::equal_rings: add_ring(program, ring_of(ranks, 1, bytes, second_stream), expand, 0); break;
    case Case::late_half_ring:
      add_ring(program, ring_of(ranks, 1, bytes / 2, second_stream), expand, 0.4 * alone_seconds(bytes));
      break;
    case Case::background: add_background(program, 2 * bytes); break;
    case Case::every_other_rank: add_ring(program, ring_of(ranks, 2, bytes, second_stream), expand, 0); break;
  }
  return program;
}

} // namespace

TEST_CASE("a ring alone takes rounds * (alpha + V / (n B)), as steps and as one transfer") {
  for (int n : {2, 3, 8, 64})
    for (bool all_reduce : {true, false}) {
      double const bytes = 256e6;
      Ring ring = ring_of(n, 1, bytes, first_stream);
      ring.rounds = (all_reduce ? 2 : 1) * (n - 1);
      double const expected = ring.rounds * (alpha + bytes / (n * bandwidth));
      for (bool expand : {true, false}) {
        FoldedProgram program = star(n);
        add_ring(program, ring, expand, 0);
        INFO("n " << n << ", " << (all_reduce ? "all-reduce" : "all-gather") << (expand ? ", steps" : ", fluid"));
        CHECK(std::abs(run_fast(program).step.value() - expected) < 1e-9);
        CHECK(std::abs(run_simgrid(program).step.value() - expected) < 1e-9);
      }
    }
}

// The ring's 126 rounds cost alpha each, then 126/64 V bytes. Fluid, two equal rings of 256 MB: 0.252 ms of latency,
// then 10.08 ms at half the bandwidth each: 0.252 + 2 * 10.08 = 20.412 ms. Every figure in milliseconds, as printed
// in the notes.
TEST_CASE("steps and fluid under contention end as the notes measured") {
  struct Row {
    Case which;
    double bytes;
    Ends steps;
    Ends fluid;
    double digits; // half a unit of the last printed one
  };
  std::vector<Row> const rows = {{Case::equal_rings, 256e6, {20.412, 20.412}, {20.412, 20.412}, 5.1e-4},
                                 {Case::late_half_ring, 256e6, {15.250, 14.343}, {15.372, 14.465}, 5.1e-4},
                                 {Case::background, 256e6, {20.324, 20.234}, {20.322, 20.232}, 5.1e-4},
                                 {Case::every_other_rank, 256e6, {20.010, 19.722}, {20.124, 19.836}, 5.1e-4},
                                 {Case::equal_rings, 16e6, {1.512, 1.512}, {1.512, 1.512}, 5.1e-4},
                                 {Case::late_half_ring, 16e6, {1.0927, 1.1305}, {1.1592, 1.1970}, 5.1e-5},
                                 {Case::background, 16e6, {1.340, 1.100}, {1.272, 1.032}, 5.1e-4},
                                 {Case::every_other_rank, 16e6, {1.324, 1.186}, {1.374, 1.236}, 5.1e-4},
                                 {Case::equal_rings, 1e6, {0.3308, 0.3308}, {0.3308, 0.3308}, 5.1e-5},
                                 {Case::late_half_ring, 1e6, {0.2933, 0.3901}, {0.2914, 0.3882}, 5.1e-5},
                                 {Case::background, 1e6, {0.2970, 0.0476}, {0.2914, 0.0420}, 5.1e-5},
                                 {Case::every_other_rank, 1e6, {0.2967, 0.1681}, {0.2914, 0.1628}, 5.1e-5}};
  for (Row const& row : rows)
    for (bool expand : {true, false}) {
      FoldedProgram const program = contention(row.which, row.bytes, expand);
      Ends const expected = expand ? row.steps : row.fluid;
      Ends const fast = ends(program, run_fast);
      INFO("case " << static_cast<int>(row.which) << ", " << row.bytes << " bytes" << (expand ? ", steps" : ", fluid"));
      CHECK(std::abs(fast.first - expected.first) < row.digits);
      CHECK(std::abs(fast.second - expected.second) < row.digits);
      if (row.which == Case::late_half_ring && row.bytes == 16e6) { // one row a form is enough for the reference
        Ends const reference = ends(program, run_simgrid);
        CHECK(std::abs(fast.first - reference.first) < 1e-6); // ms: 1e-9 s
        CHECK(std::abs(fast.second - reference.second) < 1e-6);
      }
    }
}

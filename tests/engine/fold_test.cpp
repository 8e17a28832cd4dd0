// Folding is exact, segments are exact without interference, and memory is what the ops take and release.
#include "engine/engine.hpp"
#include "engine/fold.hpp"
#include "engine/partition.hpp"
#include "planner/simulate.hpp"
#include "program/compile.hpp"
#include "program/instances.hpp"
#include "tests/catch.hpp"
#include "tests/engine/random_plan.hpp"
#include "timeline/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

using namespace foreplan;
using foreplan::testing::llama;
using foreplan::testing::random_cluster;
using foreplan::testing::random_plan;

namespace {

// Ends of all items of one class, in issue order.
std::vector<double> ends(Timeline const& timeline, std::size_t index) {
  std::vector<TimelineEntry> entries = timeline.classes[index];
  std::sort(entries.begin(), entries.end(), [](TimelineEntry const& a, TimelineEntry const& b) {
    return std::pair(a.use, a.item) < std::pair(b.use, b.item);
  });
  std::vector<double> result;
  for (TimelineEntry const& entry : entries)
    result.push_back(entry.end);
  return result;
}

double worst(std::vector<double> const& a, std::vector<double> const& b) {
  if (a.size() != b.size())
    return 1e300;
  double difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference = std::max(difference, std::abs(a[i] - b[i]));
  return difference;
}

// A program and its folding (which points into it), for one random plan and cluster.
struct Case {
  Model model;
  Plan plan;
  Cluster cluster;
  Program program;
};

Case random_case(std::mt19937_64& random, int number) {
  Model const model = llama(8);
  Plan const plan = random_plan(random, model, 64);
  Cluster const cluster = random_cluster(random, plan, number % 3 != 0);
  return {model, plan, cluster, compile(model, plan)};
}

} // namespace

TEST_CASE("folded programs give every rank the times of the unfolded ones", "[slow]") {
  std::mt19937_64 random(2026);
  std::int64_t folded_ranks = 0, classes = 0;
  double largest = 0;
  for (int i = 0; i < 240; ++i) {
    Case const c = random_case(random, i);
    INFO(describe(c.plan) << ", " << c.cluster.profile.node.devices << " devices and " << c.cluster.profile.node.nics
                          << " NICs a node, " << c.cluster.exceptions.size() << " exceptions");
    // Every second pair without interference: then no slowed item hides a wrong one.
    bool const interference = i % 2 == 0;
    Folding const folded = fold(c.program, c.cluster, {.interference = interference});
    Folding const unfolded = fold(c.program, c.cluster, {.unfold = true, .interference = interference});
    Partition const partition = foreplan::partition(c.program, c.cluster, false);
    Timeline const few = run_fast(folded.program), all = run_fast(unfolded.program);
    REQUIRE(unfolded.classes.size() == static_cast<std::size_t>(c.plan.world_size()));
    std::int64_t ranks = 0;
    for (FoldedClass const& one : folded.classes)
      ranks += one.ranks;
    REQUIRE(ranks == c.plan.world_size());
    double difference = std::abs(few.step.value() - all.step.value());
    for (std::size_t rank = 0; rank < unfolded.classes.size(); ++rank) {
      Coordinate self = coordinate_of(c.plan, unfolded.classes[rank].representative);
      int const looked_at = data_index(c.plan, self) % partition.dp_period;
      self.dp = looked_at % degree(c.plan, Axis::dp);
      self.replica = looked_at / degree(c.plan, Axis::dp);
      auto const position = std::find(partition.ranks.begin(), partition.ranks.end(), rank_at(c.plan, self));
      auto const index = static_cast<std::size_t>(position - partition.ranks.begin());
      auto const its_class = static_cast<std::size_t>(partition.rank_class[index]);
      difference = std::max(difference, worst(ends(few, its_class), ends(all, rank)));
    }
    CHECK(difference <= 1e-9);
    largest = std::max(largest, difference);
    folded_ranks += c.plan.world_size();
    classes += static_cast<std::int64_t>(folded.classes.size());
  }
  fmt::print("folding: 240 pairs, {} ranks in {} classes, largest difference {:.1e} s\n", folded_ranks, classes,
             largest);
}

TEST_CASE("aligned plans on equal nodes fold to one class a stage") {
  Model const model = llama(8);
  Plan plan;
  plan.tp = 8;
  plan.pp = 4;
  plan.dp = 2;
  plan.sequence_length = 1024;
  plan.global_batch = 16;
  Program const program = compile(model, plan);
  Cluster const cluster{foreplan::testing::test_profile(8, 8), 8, {}};
  CHECK(fold(program, cluster).classes.size() == 4);
  // A slow device makes its data-parallel group wait: its own rank and what shares groups with it differ.
  Cluster slow = cluster;
  slow.exceptions.push_back({Rank(3), 0.8, 1, 1});
  CHECK(fold(program, slow).classes.size() > 4);
}

TEST_CASE("segments give the kernels' step", "[slow]") {
  std::mt19937_64 random(7);
  double exact = 0, with_interference = 0;
  for (int i = 0; i < 300; ++i) {
    Case const c = random_case(random, i);
    INFO(describe(c.plan));
    auto step = [&](bool segments, bool interference) {
      Folding const folding = fold(c.program, c.cluster, {.segments = segments, .interference = interference});
      return run_fast(folding.program, {.keep_entries = false}).step.value();
    };
    double const difference = std::abs(step(true, true) / step(false, true) - 1);
    CHECK(difference <= 0.005);
    with_interference = std::max(with_interference, difference);
    double const alone = std::abs(step(true, false) - step(false, false));
    CHECK(alone <= 1e-9);
    exact = std::max(exact, alone);
  }
  fmt::print("segments: largest difference {:.1e} s without interference, {:.3f} % with\n", exact,
             100 * with_interference);
}

namespace {

// Peak of the temporaries and persistent buffers, op by op over all instances: what memory_of() folds by layer.
std::int64_t peak_by_instances(Program const& program, StageProgram const& stage) {
  std::int64_t now = 0, peak = 0;
  auto bytes = [](Buffer const& buffer) { return buffer.elements * size_of(buffer.dtype); };
  for (Buffer const& buffer : stage.buffers)
    if (buffer.persistent)
      now += bytes(buffer);
  std::set<BufferKey> held;
  peak = now;
  for (Instance const& instance : instances_of(program, stage)) {
    for (TensorId id : instance.op->writes) {
      BufferKey const key = resolve(program, stage, instance, tensor_of(stage, instance, id), {}).key;
      Buffer const buffer = buffer_of(program, stage, key);
      if (!buffer.persistent && held.insert(key).second)
        now += bytes(buffer);
    }
    peak = std::max(peak, now);
    for (BufferRef released : instance.op->releases) {
      BufferKey const key = resolve(program, stage, instance, released);
      held.erase(key);
      now -= bytes(buffer_of(program, stage, key));
    }
  }
  CHECK(held.empty());
  return peak;
}

} // namespace

TEST_CASE("memory is what the ops take and release, in issue order") {
  std::mt19937_64 random(11);
  for (int i = 0; i < 60; ++i) {
    Case const c = random_case(random, 1);
    INFO(describe(c.plan));
    for (StageProgram const& stage : c.program.stages)
      CHECK(memory_of(c.program, stage).peak.use.total() == peak_by_instances(c.program, stage));
  }
}

TEST_CASE("the planner's short way to the peak is the peak") {
  std::mt19937_64 random(13);
  Model const model = llama(24);
  for (int i = 0; i < 60; ++i) {
    Plan const plan = random_plan(random, model, 64);
    INFO(describe(plan) << ", m " << plan.micro_batches());
    Program const program = compile(model, plan);
    std::int64_t peak = 0;
    for (StageProgram const& stage : program.stages)
      peak = std::max(peak, memory_of(program, stage).peak.use.total());
    CHECK(peak_memory(model, plan).value() == static_cast<double>(peak));
  }
}

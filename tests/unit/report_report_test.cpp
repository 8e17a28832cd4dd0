// The report: parts that add up, conventions of MFU and HFU by hand, and the comparison of two.
#include "cluster/read_profile.hpp"
#include "model/read_model.hpp"
#include "planner/details.hpp"
#include "planner/simulate.hpp"
#include "report/compare.hpp"
#include "report/read_report.hpp"
#include "report/table.hpp"
#include "tests/catch.hpp"

#include <nlohmann/json.hpp>

#include <sstream>

using namespace foreplan;

namespace {

std::string const root = FOREPLAN_ROOT;

Model llama() { return read_model(root + "/models/llama-3.1-8b.json"); }

Cluster test_cluster(int nodes) { return {read_profile(root + "/tests/data/test_hardware.json"), nodes, {}}; }

Plan plan_of(int tp, int pp, int dp) {
  Plan plan;
  plan.tp = tp;
  plan.pp = pp;
  plan.dp = dp;
  plan.sequence_length = 4096;
  plan.global_batch = 16;
  return plan;
}

Report report_of(Plan const& plan) { return simulate(llama(), plan, test_cluster((plan.world_size() + 7) / 8)); }

Report reread(Report const& report) {
  nlohmann::ordered_json json{{"format", "foreplan report 1"}};
  json.update(to_json(report));
  return read_report(JsonReader::read_text(json.dump(), "report.json", "foreplan report 1"));
}

std::size_t longest_line(std::string const& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);)
    longest = std::max(longest, line.size());
  return longest;
}

} // namespace

TEST_CASE("every second of the step is in one part") {
  for (Plan const& plan : {plan_of(1, 1, 8), plan_of(2, 2, 2), plan_of(8, 2, 1)}) {
    Report const report = report_of(plan);
    CHECK(report.breakdown.total() / report.step == Approx(1).epsilon(1e-9));
    for (StageReport const& stage : report.stages)
      CHECK(stage.breakdown.total() / report.step == Approx(1).epsilon(1e-9));
    Breakdown const& b = report.breakdown;
    CHECK(b.overlapped <= b.communicating);
    // What the profile counts as communication holds what the report does, and the waiting.
    CHECK(b.non_compute() / (b.exposed_tp + b.exposed_dp + b.exposed_pp + b.bubble + b.host) <= 1 + 1e-9);
  }
}

// Without recomputation a token's matrix products are 6 N as in the MFU's convention. Fused attention is counted by what
// it runs: 2 products forward and 5 backward over the causal half, each 2 * a * d * s / 2 flops a token and layer: 7 L a d s,
// where the convention has 6.
TEST_CASE("executed flops without recomputation are the convention's and one more product of attention") {
  Model const model = llama();
  for (Plan const& plan : {plan_of(1, 1, 1), plan_of(2, 2, 2), plan_of(1, 4, 4)}) {
    Report const report = report_of(plan);
    double const tokens = static_cast<double>(plan.global_batch * plan.sequence_length);
    double const attention = static_cast<double>(model.layers * model.heads * model.head_size * plan.sequence_length);
    CHECK(report.executed_flops.value() ==
          Approx(tokens * (report.flops_per_token.value() + attention)).epsilon(1e-12));
    CHECK(report.hfu / report.mfu == Approx(1 + attention / report.flops_per_token.value()).epsilon(1e-12));
  }
}

// Recomputing a block runs its forward once more, but for the last product (nothing reads what `down` gives): of the four
// matrices h x (h + 2 g d), h x h, h x 2 f, f x h the first three, 2 flops a weight and token, and 2 products of attention
// over the causal half, 2 a d s.
TEST_CASE("full recomputation executes the forward of the blocks again") {
  Model const model = llama();
  Plan plan = plan_of(1, 1, 1);
  double const before = report_of(plan).executed_flops.value();
  plan.recompute = Recompute::full;
  double const after = report_of(plan).executed_flops.value();
  auto const h = static_cast<double>(model.hidden), f = static_cast<double>(model.ffn);
  auto const kv = static_cast<double>(model.kv_heads * model.head_size);
  double const again = 2 * (h * (h + 2 * kv) + h * h + h * 2 * f) + 2 * h * static_cast<double>(plan.sequence_length);
  CHECK(after - before == Approx(static_cast<double>(plan.global_batch * plan.sequence_length) * model.layers * again));
}

TEST_CASE("a report is read back as far as comparing takes") {
  Report const report = report_of(plan_of(2, 2, 2));
  Report const read = reread(report);
  CHECK(read.plan == report.plan);
  CHECK(read.step == report.step);
  CHECK(read.breakdown.bubble == report.breakdown.bubble);
  CHECK(read.breakdown.communicating == report.breakdown.communicating);
  CHECK(read.executed_flops == report.executed_flops);
  CHECK(read.fit == report.fit);
  CHECK(to_json(compare(report, report)) == to_json(compare(read, read)));
}

TEST_CASE("the parts' differences add up to the steps'") {
  Report const a = report_of(plan_of(2, 4, 1)), b = report_of(plan_of(8, 1, 1));
  Comparison const comparison = compare(a, b);
  CHECK(comparison.same_work);
  Seconds sum;
  for (PartDifference const& part : comparison.parts)
    sum += part.difference();
  CHECK(sum.value() == Approx((b.step - a.step).value()));
  for (std::size_t i = 1; i < comparison.parts.size(); ++i)
    CHECK(std::abs(comparison.parts[i].difference().value()) <= std::abs(comparison.parts[i - 1].difference().value()));
}

// Stages 4 against 1: the bubble of A is gone, (pp - 1) / m = 3 / 16 of the work.
TEST_CASE("a comparison names the bubble's reason") {
  Report const a = report_of(plan_of(2, 4, 1)), b = report_of(plan_of(8, 1, 1));
  std::string const text = to_text(compare(a, b), a, b, "A", "B");
  CHECK(text.find("pp 1 against 4: filling the pipeline") != std::string::npos);
  CHECK(text.find("18.8") != std::string::npos);
  CHECK(longest_line(text) <= 120);
}

// 32 blocks on 3 stages: 10, 11 and 11 with the head on the last, which is the slowest; what is read back says the same.
TEST_CASE("the slowest stage is named") {
  Report const report = report_of(plan_of(1, 3, 1));
  Imbalance const uneven = imbalance(report);
  CHECK(uneven.slowest == Stage(2));
  Seconds sum;
  for (StageReport const& stage : report.stages)
    sum += stage.breakdown.compute_total();
  CHECK(1 + uneven.excess == Approx(report.stages[2].breakdown.compute_total() / (sum / 3)));
  CHECK(imbalance(reread(report)).excess == uneven.excess);
  CHECK(to_text(report).find("Stage 2 computes") != std::string::npos);
}

// Twice the devices and half the step are the same device time.
TEST_CASE("different work is compared by the device time of a million tokens") {
  Report a = report_of(plan_of(8, 1, 1));
  Report b = a;
  b.devices *= 2;
  b.step = b.step / 2;
  for (Seconds& seconds : b.breakdown.compute)
    seconds = seconds / 2;
  Comparison const comparison = compare(a, b);
  CHECK(!comparison.same_work);
  CHECK(comparison.a.value() == Approx(a.step.value() * a.devices * 1e6 / (16 * 4096)));
  CHECK(comparison.b.value() == Approx(comparison.a.value()));
}

TEST_CASE("the text is a screen") {
  Plan widest = plan_of(2, 4, 2);
  widest.chunks = 2;
  widest.schedule = Schedule::interleaved;
  widest.p2p = P2p::overlapped;
  widest.sequence_parallel = true;
  widest.zero_stage = 1;
  for (Plan const& plan : {plan_of(1, 1, 8), plan_of(2, 2, 2), plan_of(1, 16, 1), widest}) {
    std::string const text = to_text(report_of(plan));
    CHECK(longest_line(text) <= 120);
    CHECK(std::count(text.begin(), text.end(), '\n') <= 45);
    CHECK(text.find("MFU   6 N + causal attention") != std::string::npos);
    CHECK(text.find("Not modelled") != std::string::npos);
  }
}

TEST_CASE("text is broken between words") {
  CHECK(wrapped("a ", "bb cc dd", 7) == "a bb cc\n  dd\n");
  CHECK(wrapped("", "one", 7) == "one\n");
  CHECK(wrapped("  a head of many characters ", "b c", 29) == "  a head of many characters b\n      c\n");
}

// Of 2 stages and 4 micro-batches each rank: 4 F and 4 B a stage, each B after its F, none at once with another on its stage;
// the largest peak of the course is the report's.
TEST_CASE("details tell the passes and the memory's course") {
  Plan plan = plan_of(2, 2, 2);
  plan.global_batch = 8;
  Cluster const cluster = test_cluster(1);
  Simulation const run = run_plan(llama(), plan, cluster);
  Report const report = report_of(run, cluster);
  Details const details = details_of(run, cluster);
  CHECK(details.passes.size() == 2 * 2 * 4);
  for (PassSpan const& a : details.passes)
    for (PassSpan const& b : details.passes)
      if (a.stage == b.stage) {
        if (a.micro_batch == b.micro_batch && a.kind == SlotKind::forward && b.kind == SlotKind::backward)
          CHECK(a.end <= b.start);
        if (a.start < b.start)
          CHECK(a.end <= b.start);
      }
  REQUIRE(details.memory.size() == 2);
  for (std::size_t s = 0; s < 2; ++s) {
    std::int64_t most = 0;
    Seconds reached;
    for (MemoryMoment const& moment : details.memory[s]) {
      most = std::max(most, moment.peak);
      CHECK(reached <= moment.start); // in issue order, which is the compute stream's
      CHECK(moment.start <= moment.end);
      reached = moment.end;
    }
    CHECK(reached <= report.step);
    CHECK(reached >= details.passes[8 * s + 7].end); // its last pass, before the optimizer
    CHECK(most == report.stages[s].peak.total());
  }
  CHECK(details.ranks.size() == 8);
  CHECK(details.ranks[7].pp == 1);
}

// The trace: valid JSON with PyTorch's names and arguments, and the same story as the report's.
#include "cluster/read_profile.hpp"
#include "model/read_model.hpp"
#include "planner/simulate.hpp"
#include "tests/catch.hpp"

#include <nlohmann/json.hpp>

#include <map>
#include <set>
#include <sstream>

using namespace foreplan;

namespace {

std::string const root = FOREPLAN_ROOT;

struct Traced {
  nlohmann::json trace;
  Report report;
};

Traced traced(Plan const& plan, int stage) {
  Model model = read_model(root + "/models/llama-3.1-8b.json");
  model.layers = 4;
  Cluster const cluster{read_profile(root + "/tests/data/test_hardware.json"), 1, {}};
  Simulation const run = run_plan(model, plan, cluster, {.segments = false});
  std::ostringstream out;
  write_trace(out, run, cluster, stage);
  return {nlohmann::json::parse(out.str()), report_of(run, cluster, {.segments = false})};
}

Plan plan_of(int tp, int pp, int dp) {
  Plan plan;
  plan.tp = tp;
  plan.pp = pp;
  plan.dp = dp;
  plan.zero_stage = dp > 1 ? 1 : 0;
  plan.sequence_length = 1024;
  plan.global_batch = 4 * dp;
  return plan;
}

struct Interval {
  double begin, end;
};

// Of intervals that are sorted or not: the length of their union.
double covered(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(), [](Interval a, Interval b) { return a.begin < b.begin; });
  double length = 0, end = 0;
  for (Interval interval : intervals) {
    length += std::max(0.0, interval.end - std::max(end, interval.begin));
    end = std::max(end, interval.end);
  }
  return length;
}

} // namespace

TEST_CASE("a trace has PyTorch's events and arguments") {
  Traced const result = traced(plan_of(2, 2, 2), -1);
  CHECK(result.trace["schemaVersion"] == 1);
  CHECK(result.trace["distributedInfo"]["world_size"] == 8);
  std::set<int> devices;
  std::map<std::string, int> collectives;
  int steps = 0;
  for (auto const& event : result.trace["traceEvents"]) {
    if (event["ph"] != "X")
      continue;
    CHECK(event["dur"].get<double>() >= 0);
    steps += event["name"] == "ProfilerStep#1" && event["cat"] == "user_annotation";
    if (event["cat"] != "kernel")
      continue;
    devices.insert(event["pid"].get<int>());
    CHECK(event["args"]["stream"] == event["tid"]);
    CHECK(event["args"].contains("correlation"));
    if (event["name"].get<std::string>().starts_with("nccl")) {
      for (char const* key : {"Collective name", "dtype", "In msg nelems", "Out msg nelems", "Group size",
                              "Process Group Name", "Process Group Description", "Process Group Ranks"})
        CHECK(event["args"].contains(key));
      ++collectives[event["args"]["Collective name"].get<std::string>()];
    }
  }
  CHECK(steps == 2);                     // one rank a stage
  CHECK(devices == std::set<int>{0, 4}); // tp varies fastest, then dp, then pp: stage 1 begins at rank 4
  // 2 micro-batches of each dp rank, one send and one receive each on both stages
  CHECK(collectives["send"] == 2 * 4);
  CHECK(collectives["recv"] == 2 * 4);
  CHECK(collectives["allreduce"] > 0);
  CHECK(collectives["_reduce_scatter_base"] > 0);
  CHECK(collectives["_allgather_base"] > 0);
}

// tp 2 of ranks 0 and 1: one all-reduce of T x h elements after attention and one after the MLP, in both directions.
TEST_CASE("a collective's arguments say what the program says") {
  Traced const result = traced(plan_of(2, 1, 1), 0);
  bool found = false;
  for (auto const& event : result.trace["traceEvents"])
    if (event.value("cat", "") == "kernel" && event["args"].value("op", "") == "reduce out output") {
      found = true;
      CHECK(event["name"] == "ncclDevKernel_AllReduce_Sum_bf16_RING_LL");
      CHECK(event["args"]["Collective name"] == "allreduce");
      CHECK(event["args"]["In msg nelems"] == 1024 * 4096);
      CHECK(event["args"]["Group size"] == 2);
      CHECK(event["args"]["Process Group Ranks"] == "[0, 1]");
      CHECK(event["args"]["Process Group Description"] == "tp");
      CHECK(event["args"]["dtype"] == "BFloat16");
    }
  CHECK(found);
}

TEST_CASE("kernels of a stream do not overlap, and all lie within the step") {
  Traced const result = traced(plan_of(2, 2, 2), -1);
  std::map<std::pair<int, int>, double> ends;
  double const step = result.report.step.value() * 1e6;
  for (auto const& event : result.trace["traceEvents"])
    if (event.value("cat", "") == "kernel") {
      double const begin = event["ts"].get<double>(), end = begin + event["dur"].get<double>();
      double& last = ends[{event["pid"].get<int>(), event["tid"].get<int>()}];
      REQUIRE(begin >= last - 0.0015); // three digits
      REQUIRE(end <= step + 0.0015);
      last = end;
    }
}

// HolisticTraceAnalysis: non-compute is communication that no compute kernel covers; overlap is covered communication over
// all communication. Both from the trace's intervals, and as the report says.
TEST_CASE("the trace tells HolisticTraceAnalysis what the report says") {
  for (Plan const& plan : {plan_of(2, 2, 1), plan_of(1, 2, 2), plan_of(4, 1, 2)}) {
    int const stage = plan.pp - 1;
    Traced const result = traced(plan, stage);
    std::vector<Interval> compute, communication, both;
    for (auto const& event : result.trace["traceEvents"])
      if (event.value("cat", "") == "kernel") {
        double const begin = event["ts"].get<double>();
        Interval const interval{begin, begin + event["dur"].get<double>()};
        (event["name"].get<std::string>().starts_with("nccl") ? communication : compute).push_back(interval);
        both.push_back(interval);
      }
    Breakdown const& b = result.report.stages[static_cast<std::size_t>(stage)].breakdown;
    double const us = 1e6;
    CHECK(covered(compute) == Approx(b.compute_total().value() * us).epsilon(1e-3));
    CHECK(covered(both) - covered(compute) == Approx(b.non_compute().value() * us).epsilon(1e-3));
    CHECK((covered(compute) + covered(communication) - covered(both)) / covered(communication) ==
          Approx(overlap(b)).epsilon(1e-3).margin(1e-3));
  }
}

#include "planner/step_band.hpp"

#include "cluster/read_profile.hpp"
#include "model/read_model.hpp"
#include "planner/simulate.hpp"
#include "report/read_report.hpp"
#include "tests/catch.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

using namespace foreplan;

namespace {

Op op_of(OpKind kind) {
  Op op;
  op.kind = kind;
  return op;
}

void add(Folding& folding, Op const& op, double seconds, double band) {
  Demand demand;
  demand.device = ComputeDemand{Seconds(seconds)};
  demand.band = band;
  Item item;
  item.demand = static_cast<std::int32_t>(folding.program.demands.size());
  folding.program.demands.push_back(demand);
  folding.program.blocks.push_back({{item}});
  folding.blocks.push_back({.op = &op});
}

CriticalPath path_of(double gemm, double attention, double tp, double host) {
  CriticalPath path;
  auto set = [&](PathKind kind, double seconds) { path.by_kind[static_cast<std::size_t>(kind)] = Seconds(seconds); };
  set(PathKind::gemm, gemm);
  set(PathKind::attention, attention);
  set(PathKind::tp, tp);
  set(PathKind::host, host);
  return path;
}

} // namespace

// Products 6 s at 10 %; attention 4 s, of which the forward half is known at 20 %: 0.6 s and 0.4 s are independent, so
// sqrt(0.36 + 0.16) = 0.721 s of 8 s that are known.
TEST_CASE("a step's band adds classes of ops as independent") {
  Op const product = op_of(OpKind::linear_forward), forward = op_of(OpKind::attention_forward);
  Op const backward = op_of(OpKind::attention_backward);
  Folding folding;
  add(folding, product, 2, 0.1);
  add(folding, forward, 1, 0.2);
  add(folding, backward, 1, 0);
  StepBand const band = step_band(folding, path_of(6, 4, 0, 0));
  CHECK(band.relative == Approx(std::sqrt(0.52) / 8));
  CHECK(band.known == Approx(0.8));
}

// All of one class errs together: two products of 10 and 30 %, equally long, deviate by 20 % however many run.
TEST_CASE("a step's band adds the ops of a class as correlated") {
  Op const product = op_of(OpKind::linear_forward);
  Folding folding;
  add(folding, product, 1, 0.1);
  add(folding, product, 1, 0.3);
  StepBand const band = step_band(folding, path_of(8, 0, 0, 2));
  CHECK(band.relative == Approx(0.2));
  CHECK(band.known == Approx(0.8)); // not the host's part
}

TEST_CASE("a step has no band where less than half of it is known") {
  Op const product = op_of(OpKind::linear_forward), reduction = op_of(OpKind::all_reduce);
  Folding folding;
  add(folding, product, 1, 0.1);
  add(folding, reduction, 1, 0);
  StepBand const band = step_band(folding, path_of(4, 0, 6, 0));
  CHECK(band.relative == 0);
  CHECK(band.known == Approx(0.4));
}

// On the H100 products are known to 6 %, collectives to 10 %: a step lies between a few percent and the
// largest of these.
TEST_CASE("the report says the band in text and JSON, and reads it back") {
  Plan plan;
  plan.tp = 4;
  plan.dp = 2;
  plan.sequence_length = 4096;
  plan.global_batch = 16;
  std::string const root = FOREPLAN_ROOT;
  Cluster const cluster{read_profile(root + "/hardware_profiles/dgx-h100.json"), 1, {}};
  Report const report = simulate(read_model(root + "/models/llama-3.1-8b.json"), plan, cluster);
  CHECK(report.band > 0.02);
  CHECK(report.band < 0.15);
  CHECK(report.band_known > 0.5);
  CHECK(report.band_known <= 1);
  CHECK(to_text(report).find(fmt::format(" a step (+- {:.0f} %), ", 100 * report.band)) != std::string::npos);
  nlohmann::ordered_json const json = to_json(report);
  CHECK(json.at("step_band") == report.band);
  Report const read = read_report(JsonReader::read_text(json.dump(), "report"));
  CHECK(read.band == report.band);
  CHECK(read.band_known == report.band_known);
}

// What an offloaded optimizer costs, in the limits where a closed form says it (ZeRO-Offload, arXiv 2101.06840).
#include "cluster/read_profile.hpp"
#include "model/read_model.hpp"
#include "planner/bounds.hpp"
#include "planner/search.hpp"
#include "planner/simulate.hpp"
#include "program/compile.hpp"
#include "report/report.hpp"
#include "tests/catch.hpp"
#include "timeline/memory.hpp"

using namespace foreplan;

namespace {

Model llama() { return read_model(std::string(FOREPLAN_ROOT) + "/models/llama-3.1-8b.json"); }

Cluster node() { return {read_profile(std::string(FOREPLAN_ROOT) + "/hardware_profiles/dgx-h100.json"), 1, {}}; }

// ZeRO 1 on the 8 devices of a node, fp32 gradients.
Plan offloaded() {
  Plan plan;
  plan.dp = 8;
  plan.zero_stage = 1;
  plan.offload.optimizer = MemoryTier::host;
  plan.recompute = Recompute::full;
  plan.sequence_length = 4096;
  plan.global_batch = 16;
  plan.bucket_elements = 100'000'000;
  return plan;
}

double parameters_of_a_rank() { return static_cast<double>(parameter_count(llama())) / 8; }

} // namespace

// Of each of its P / 8 parameters a rank pins master and two moments (12 bytes), the gradient (4) and the copy for the
// device (2); the device keeps none of the 12.
TEST_CASE("an offloaded optimizer takes 18 bytes of a parameter from the host, none from the device", "[offload]") {
  Program const program = compile(llama(), offloaded());
  StageMemory const memory = memory_of(program, program.stages[0]);
  CHECK(static_cast<double>(memory.elsewhere[static_cast<std::size_t>(MemoryTier::host)]) ==
        Approx(18 * parameters_of_a_rank()).epsilon(1e-6));
  CHECK(memory.persistent.by_category[static_cast<std::size_t>(Category::optimizer)] == 0);
}

// A quarter on the host: a quarter of the bytes there, three quarters of 12 on the device (Twin-Flow).
TEST_CASE("a part of the optimizer may stay", "[offload]") {
  Plan plan = offloaded();
  plan.offload.ratio = 0.25;
  Program const program = compile(llama(), plan);
  StageMemory const memory = memory_of(program, program.stages[0]);
  CHECK(static_cast<double>(memory.elsewhere[static_cast<std::size_t>(MemoryTier::host)]) ==
        Approx(18 * parameters_of_a_rank() / 4).epsilon(1e-6));
  CHECK(static_cast<double>(memory.persistent.by_category[static_cast<std::size_t>(Category::optimizer)]) ==
        Approx(12 * parameters_of_a_rank() * 3 / 4).epsilon(1e-6));
}

// A link without end: what is exposed is Adam on the host, and the copies up, which read the same memory. Of a parameter,
// 24 bytes of states, 4 of gradient and 2 of the copy, and these 2 again; 8 ranks share the node's 450 GB/s.
TEST_CASE("bound by the host's memory: 32 bytes a parameter", "[offload]") {
  Cluster cluster = node();
  cluster.profile.node.host->link = cluster.profile.node.host->shared_link = BytesPerSecond(1e15);
  cluster.profile.node.host->core_bandwidth = BytesPerSecond(1e15);
  double const memory = cluster.profile.node.host->memory_bandwidth.value();
  Report const report = simulate(llama(), offloaded(), cluster);
  CHECK(report.breakdown.exposed_offload.value() == Approx(32 * 8 * parameters_of_a_rank() / memory).epsilon(0.02));
}

// A host without end: the parameters' 2 bytes go up, one rank over one link; gradients went down under the backward, but
// for those of the last bucket (embedding and first blocks: at most 0.2 of all, 4 bytes each).
TEST_CASE("bound by the link: 2 bytes a parameter up, the last bucket's gradients down", "[offload]") {
  Cluster cluster = node();
  cluster.profile.node.host->memory_bandwidth = cluster.profile.node.host->core_bandwidth = BytesPerSecond(1e15);
  double const link = cluster.profile.node.host->link.value();
  Report const report = simulate(llama(), offloaded(), cluster);
  double const up = 2 * parameters_of_a_rank() / link;
  CHECK(report.breakdown.exposed_offload.value() > up);
  CHECK(report.breakdown.exposed_offload.value() < up + 0.2 * 4 * parameters_of_a_rank() / link);
  CHECK(report.breakdown.hidden_offload.value() > 0.8 * 4 * parameters_of_a_rank() / link);
}

// Both without end: nothing is exposed but latencies.
TEST_CASE("bound by nothing: hidden", "[offload]") {
  Cluster cluster = node();
  Host& host = *cluster.profile.node.host;
  host.memory_bandwidth = host.core_bandwidth = host.link = host.shared_link = BytesPerSecond(1e15);
  Report const report = simulate(llama(), offloaded(), cluster);
  CHECK(report.breakdown.exposed_offload.value() < 0.01 * report.step.value());
  CHECK(to_text(report).find("A rank pins") != std::string::npos);
}

// Drives alone are slow. Of each of a rank's P / 8 parameters an update reads 12 bytes of states and 4 of gradient, and
// writes 12; the 8 ranks share the node's drives. Reads and writes run side by side, sub-group by sub-group.
TEST_CASE("bound by drives: the longer of 16 bytes read and 12 written", "[offload]") {
  Cluster cluster = node();
  Host& host = *cluster.profile.node.host;
  host.memory_bandwidth = host.core_bandwidth = host.link = host.shared_link = BytesPerSecond(1e15);
  Plan plan = offloaded();
  plan.offload.optimizer = MemoryTier::disk;
  plan.offload.sub_group = 10'000'000;
  plan.gradient_dtype = DType::fp32;
  double const read = 16 * 8 * parameters_of_a_rank() / (host.drive_read.value() * host.drives);
  double const written = 12 * 8 * parameters_of_a_rank() / (host.drive_write.value() * host.drives);
  Report const report = simulate(llama(), plan, cluster);
  // Behind the passes, those gradients are still written that no pass hid: 4 bytes at most, before anything else is.
  double const left = 4 * 8 * parameters_of_a_rank() / (host.drive_write.value() * host.drives);
  CHECK(report.breakdown.exposed_offload.value() > std::max(read, written));
  CHECK(report.breakdown.exposed_offload.value() < 1.05 * (std::max(read, written) + left));
}

// Whole parameters and gradients take 6 of 8e9 bytes, about 55 GB with what else there is; states, 12 GB more, have not
// all room in 86 % of 71 GB. The search keeps on the devices what they have room for, and finds nothing when it may not
// ask for the host.
TEST_CASE("the search offloads when it may, and no more than it must", "[offload]") {
  SearchRequest request;
  request.model = llama();
  request.cluster = node();
  request.cluster.profile.chip.memory = Bytes(72e9);
  request.sequence_length = 4096;
  request.global_batch = 8;
  request.finalists = 0;
  request.threads = 1;
  for (char const* text : {"tp=1", "pp=1", "zero=1", "recompute=full", "micro-batch=1"})
    request.constraints.push_back(read_constraint("--require", text));
  CHECK(search(request).ranked.empty());
  request.offload = true;
  SearchResult const found = search(request);
  REQUIRE(!found.ranked.empty());
  Plan const& best = found.ranked[0].plan;
  CHECK(best.offload.optimizer == MemoryTier::host);
  CHECK(best.offload.ratio < 1);
  Plan more = best;
  more.offload.ratio -= 0.01;
  CHECK(fit_of(memory_needs(request.model, more), request.cluster.profile, request.headroom) != Fit::fits);
  LowerBound bound(request.model, request.cluster);
  for (Candidate const& candidate : found.ranked)
    CHECK(bound(candidate.plan) <= candidate.step);
}

// Slower the more the host updates.
TEST_CASE("the step grows with the part that is offloaded", "[offload]") {
  Plan plan = offloaded();
  plan.offload.optimizer = MemoryTier::device;
  Seconds before = simulate(llama(), plan, node()).step;
  plan.offload.optimizer = MemoryTier::host;
  for (double ratio : {0.25, 0.5, 0.75, 1.0}) {
    plan.offload.ratio = ratio;
    Seconds const step = simulate(llama(), plan, node()).step;
    CHECK(step > before);
    before = step;
  }
  CHECK(before > 1.2 * simulate(
                           llama(),
                           [&] {
                             Plan p = plan;
                             p.offload = {};
                             return p;
                           }(),
                           node())
                           .step);
}

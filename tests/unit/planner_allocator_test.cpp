// What the caching allocator needs and reserves beside tensors, the odds that this fits, and the risks of a step, by hand.
#include "cluster/read_profile.hpp"
#include "model/read_model.hpp"
#include "planner/allocator.hpp"
#include "planner/risk.hpp"
#include "planner/simulate.hpp"
#include "tests/catch.hpp"

#include <cmath>

using namespace foreplan;

namespace {

std::string const root = FOREPLAN_ROOT;

Model llama() { return read_model(root + "/models/llama-3.1-8b.json"); } // 32 blocks, h = 4096

Plan tensor_parallel() {
  Plan plan;
  plan.tp = 2;
  plan.dp = 4;
  plan.sequence_parallel = true;
  plan.sequence_length = 4096;
  plan.global_batch = 16;
  return plan;
}

double tensors_with_waste(StagePeak const& peak) {
  return static_cast<double>(peak.tensors.use.total()) * (1 + allocator_waste);
}

constexpr double boundary = 4096.0 * 4096 * 2; // bytes: tokens x hidden, bf16

} // namespace

// Each of the 32 blocks reduce-scatters two outputs of all tokens, the embedding one: 65 boundaries wait. Both gather
// buffers hold one. Gradients add up within products: no 16-bit ones.
TEST_CASE("without a pipeline, inputs of reduce-scatters wait", "[allocator]") {
  StagePeak const peak = stage_peaks(llama(), tensor_parallel()).at(0);
  CHECK(peak.needed.value() == Approx(tensors_with_waste(peak) + 2 * boundary));
  CHECK((peak.reserved - peak.needed).value() == Approx(65 * boundary));
}

// Gradients of all parameters of a rank, 2 bytes each: as much as the parameters.
TEST_CASE("gradients that are added late need the parameters' bytes once more", "[allocator]") {
  Plan plan;
  plan.dp = 8;
  plan.sequence_length = 4096;
  plan.global_batch = 16;
  plan.execution.fused_accumulation = false;
  StagePeak const peak = stage_peaks(llama(), plan).at(0);
  CHECK(peak.needed.value() ==
        Approx(tensors_with_waste(peak) + 2 * static_cast<double>(parameter_count(llama()))).epsilon(1e-6));
  CHECK(peak.reserved == peak.needed);
}

// Log-normal: half at the limit, 84 % one spread below, 16 % one above.
TEST_CASE("odds that a plan fits", "[allocator]") {
  Bytes const usable(80e9);
  CHECK(probability_of_fit(usable, usable) == Approx(0.5));
  CHECK(probability_of_fit(usable * std::exp(-memory_spread), usable) == Approx(0.8413).epsilon(1e-3));
  CHECK(probability_of_fit(usable * std::exp(memory_spread), usable) == Approx(0.1587).epsilon(1e-3));
}

// Near the limit a step counts four times; over EFA, tp 2 and pp 2 on 16 devices may lose 2 x 0.015 s in each of
// 16 / (1 x 4) = 4 micro-batches, and plans without either lose nothing.
TEST_CASE("steps with the risks of their plans", "[risk]") {
  Cluster const efa{read_profile(root + "/hardware_profiles/aws-p5-h100.json"), 2, {}};
  Bytes const usable = usable_memory(efa.profile);
  Plan plan = tensor_parallel();
  CHECK(with_risk(Seconds(1), plan, efa, usable * 0.5).value() == Approx(1));
  CHECK(with_risk(Seconds(1), plan, efa, usable * 0.95).value() == Approx(4));
  plan.pp = 2;
  CHECK(with_risk(Seconds(1), plan, efa, usable * 0.5).value() == Approx(1 + 2 * slow_mode_loss * 4));
  CHECK(risk_text(plan, efa, usable * 0.5, usable).find("tp and pp") != std::string::npos);
  Cluster const infiniband{read_profile(root + "/hardware_profiles/dgx-h100.json"), 2, {}};
  CHECK(with_risk(Seconds(1), plan, infiniband, usable * 0.5).value() == Approx(1));
}

// Models that are read and counted but have no layer programs yet: the plan checker says so in one line.
#include "model/read_model.hpp"
#include "plan/plan_checker.hpp"
#include "tests/catch.hpp"

using namespace foreplan;

namespace {

std::string finding_of(std::string const& name, std::int64_t sequence_length = 1024) {
  Model const model = read_model(std::string(FOREPLAN_ROOT) + "/models/" + name + ".json");
  Plan plan;
  plan.sequence_length = sequence_length;
  plan.global_batch = 1;
  std::vector<PlanFinding> const findings = check(model, plan);
  return findings.empty() ? "" : findings[0].text;
}

} // namespace

TEST_CASE("models that cannot be simulated yet are refused in one line") {
  CHECK(finding_of("mixtral-8x7b") == "Mixtral-8x7B has experts (mixture of experts), which cannot be simulated yet");
  CHECK(finding_of("gpt-neox-20b") == "GPT-NeoX-20B has attention and MLP in parallel, which cannot be simulated yet");
  for (char const* name : {"llama-2-7b", "llama-3.1-405b", "gpt-3-175b", "mt-nlg-530b", "mistral-7b", "bloom-176b"})
    CHECK(finding_of(name).empty());
}

TEST_CASE("a window is no matter for sequences that fit into it") {
  CHECK(finding_of("phi-3-mini", 2047).empty());
  CHECK(finding_of("phi-3-mini", 2048) == "sequences of 2048 tokens exceed the model's attention window of 2047, which "
                                          "cannot be simulated yet; valid: 2047");
}

// What users ran and what happened (cases.json), beside what Foreplan says. A case in which the two differ is listed with
// its reason; a reason that is no longer needed fails too.
#include "cluster/read_profile.hpp"
#include "model/read_model.hpp"
#include "model/size_in_name.hpp"
#include "plan/plan_checker.hpp"
#include "plan/read_plan.hpp"
#include "planner/search_space.hpp"
#include "planner/simulate.hpp"
#include "report/table.hpp"
#include "tests/catch.hpp"
#include "units/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>

using namespace foreplan;
using nlohmann::json;

namespace {

std::string const root = FOREPLAN_ROOT "/";

// What Foreplan says of a case, and whether that is what happened.
struct Saying {
  std::string text;
  bool agrees = false;
};

json with_format(json object, std::string const& format) {
  object["format"] = format;
  return object;
}

Model model_of(json const& document, json const& one) {
  std::string const name = one.at("model");
  if (name.starts_with("models/"))
    return read_model(root + name);
  json model = with_format(document.at("models").at(name), "foreplan model 1");
  model["name"] = name;
  return read_model(JsonReader::read_text(model.dump(), name));
}

Plan plan_of(json const& one) {
  return read_plan(JsonReader::read_text(with_format(one.at("plan"), "foreplan plan 1").dump(), one.at("id")));
}

// The profile's, on a device with the case's memory if it gives one.
HardwareProfile profile_of(json const& one) {
  HardwareProfile profile = read_profile(root + std::string(one.at("hardware")));
  if (one.contains("memory"))
    profile.chip.memory = parse_quantity<Bytes>(std::string(one.at("memory")));
  return profile;
}

double share_of(Bytes part, Bytes whole) { return 100 * (part / whole); }

// A plan that fits without headroom (borderline) fits: the threads tell what ran, not what was wise.
Saying say_memory(Model const& model, Plan const& plan, json const& one, std::string const& happened) {
  REQUIRE(check(model, plan).empty());
  Bytes const peak = peak_memory(model, plan), usable = usable_memory(profile_of(one));
  Fit const fit = fit_of(peak, usable, 0.14);
  return {fmt::format("{}: {} of {} ({:.0f} %)", to_string(fit), to_string(peak), to_string(usable),
                      share_of(peak, usable)),
          happened == (fit == Fit::too_large ? "too large" : "fits")};
}

// The best of all plans that the planner looks at on so many devices.
Saying say_any_plan(Model const& model, Plan const& plan, json const& one, std::string const& happened) {
  HardwareProfile const profile = profile_of(one);
  SearchSpace const space = search_space(model, one.at("devices"), profile.node.devices, plan.sequence_length,
                                         plan.global_batch);
  REQUIRE(!space.plans.empty());
  Bytes least(INFINITY);
  for (Plan const& candidate : space.plans)
    if (candidate.micro_batch == 1 && candidate.chunks == 1) // others need more
      least = std::min(least, peak_memory(model, candidate));
  Bytes const usable = usable_memory(profile);
  bool const fits = least <= usable;
  return {fmt::format("{}: the least of {} plans is {} of {} ({:.0f} %)", fits ? "one fits" : "none fits",
                      space.plans.size(), to_string(least), to_string(usable), share_of(least, usable)),
          happened == (fits ? "one fits" : "none fits")};
}

Saying say_rule(Model const& model, Plan const& plan, std::string const& rule, std::vector<std::int64_t> const& valid) {
  std::vector<PlanFinding> const findings = check(model, plan);
  auto const found = std::find_if(findings.begin(), findings.end(), [&](auto const& f) { return f.rule == rule; });
  if (found == findings.end())
    return {"no finding of this rule", false};
  return {found->text, found->nearest == valid};
}

// Every block is on some stage: none is lost, none is built twice.
Saying say_blocks(Model const& model, Plan const& plan, std::vector<int> const& expected) {
  REQUIRE(check(model, plan).empty());
  std::vector<int> blocks;
  int sum = 0;
  for (int stage = 0; stage < plan.pp; ++stage) {
    LayerRange const range = layers_of(model, plan, Stage(stage), Chunk(0));
    blocks.push_back(std::min(range.last, model.layers + 1) - std::max(range.first, 1));
    sum += blocks.back();
  }
  return {fmt::format("legal: {} blocks by stage: {}", sum, fmt::join(blocks, " ")),
          sum == model.layers && blocks == expected};
}

Saying say_micro_batches(Model const& model, Plan const& plan, std::int64_t expected) {
  REQUIRE(check(model, plan).empty());
  return {fmt::format("legal: {} micro-batches a step and rank", plan.micro_batches()),
          plan.micro_batches() == expected};
}

Saying say_first_stage(Model const& model, Plan const& plan) {
  Cluster const cluster{read_profile(root + "hardware_profiles/dgx-h100.json"), 1, {}};
  std::vector<StageReport> const stages = simulate(model, plan, cluster).stages;
  auto const gigabytes = [](StageReport const& stage) { return static_cast<double>(stage.peak.total()) / 1e9; };
  double second_most = 0;
  for (std::size_t i = 1; i < stages.size(); ++i)
    second_most = std::max(second_most, gigabytes(stages[i]));
  return {fmt::format("stage 0 needs {:.2f} GB, of the others none more than {:.2f} GB, the last {:.2f} GB",
                      gigabytes(stages[0]), second_most, gigabytes(stages.back())),
          gigabytes(stages[0]) > second_most};
}

Saying say_parameters(Model const& model, double expected, double in_name) {
  auto const count = static_cast<double>(parameter_count(model));
  return {warn_of_name(model),
          size_in_name(model.name) == in_name && !warn_of_name(model).empty() && std::abs(count / expected - 1) < 0.02};
}

Saying say(json const& document, json const& one) {
  Model const model = model_of(document, one);
  Plan const plan = plan_of(one);
  json const& expect = one.at("expect");
  if (expect.contains("memory"))
    return say_memory(model, plan, one, expect.at("memory"));
  if (expect.contains("any_plan"))
    return say_any_plan(model, plan, one, expect.at("any_plan"));
  if (expect.contains("rule"))
    return say_rule(model, plan, expect.at("rule"), expect.at("valid"));
  if (expect.contains("blocks"))
    return say_blocks(model, plan, expect.at("blocks"));
  if (expect.contains("micro_batches"))
    return say_micro_batches(model, plan, expect.at("micro_batches"));
  if (expect.contains("first_stage"))
    return say_first_stage(model, plan);
  return say_parameters(model, expect.at("parameters"), expect.at("size_in_name"));
}

// Cells of different lengths: flush left, and the last as long as it is.
void print(std::vector<std::vector<std::string>> const& rows) {
  for (auto const& row : rows)
    std::cout << fmt::format("{:<32} {:<66} {}\n", row[0], row[1], row[2]);
  std::cout << std::flush;
}

} // namespace

TEST_CASE("field cases: what happened and what Foreplan says") {
  std::ifstream file(root + "tests/field/cases.json");
  json const document = json::parse(file, nullptr, true, true);
  std::vector<std::vector<std::string>> rows{{"case", "what happened", "what Foreplan says"}};
  int disagreements = 0;
  for (json const& one : document.at("cases")) {
    std::string const id = one.at("id");
    Saying const saying = say(document, one);
    bool const known = one.contains("disagreement");
    disagreements += known ? 1 : 0;
    rows.push_back({id, one.at("happened"), saying.text + (known ? " (known disagreement)" : "")});
    INFO(id << ": " << saying.text << "; expected " << one.at("expect").dump());
    CHECK(saying.agrees != known);
  }
  print(rows);
  CHECK(rows.size() - 1 >= 25);
  CHECK(disagreements <= 5); // the list stays short
}

#include "plan/read_plan.hpp"
#include "report/report.hpp"

#include <nlohmann/json.hpp>

namespace foreplan {

namespace {

using Json = nlohmann::ordered_json;

Json to_json(Breakdown const& b) {
  return {{"compute_gemm_s", b.compute[0].value()},
          {"compute_attention_s", b.compute[1].value()},
          {"compute_memory_bound_s", b.compute[2].value()},
          {"exposed_tp_s", b.exposed_tp.value()},
          {"exposed_dp_s", b.exposed_dp.value()},
          {"exposed_pp_s", b.exposed_pp.value()},
          {"host_s", b.host.value()},
          {"bubble_s", b.bubble.value()},
          {"hidden_tp_s", b.hidden_tp.value()},
          {"hidden_dp_s", b.hidden_dp.value()},
          {"hidden_pp_s", b.hidden_pp.value()}};
}

Json to_json(MemoryUse const& use) {
  Json json;
  for (std::size_t i = 0; i < use.by_category.size(); ++i)
    json[std::string(to_string(static_cast<Category>(i))) + "_B"] = use.by_category[i];
  json["total_B"] = use.total();
  return json;
}

} // namespace

nlohmann::ordered_json to_json(Report const& report) {
  Json stages = Json::array();
  for (StageReport const& stage : report.stages)
    stages.push_back({{"stage", stage.stage.value()},
                      {"layers", stage.layers},
                      {"breakdown", to_json(stage.breakdown)},
                      {"persistent_memory", to_json(stage.persistent)},
                      {"peak_memory", to_json(stage.peak)},
                      {"peak_moment", stage.peak_moment}});
  return {{"model", report.model},
          {"hardware", report.hardware},
          {"devices", report.devices},
          {"plan", Json::parse(plan_json(report.plan))},
          {"engine", report.engine},
          {"items", report.items},
          {"step_s", report.step.value()},
          {"tokens_per_s", report.tokens_per_second},
          {"tokens_per_s_per_device", report.tokens_per_second / report.devices},
          {"mfu", report.mfu},
          {"flops_per_token", report.flops_per_token.value()},
          {"mfu_convention", "6 N + causal attention, no recomputation; dense bf16 peak"},
          {"breakdown", to_json(report.breakdown)},
          {"usable_memory_B", report.usable_memory.value()},
          {"peak_memory_B", report.peak_memory.value()},
          {"headroom", report.headroom},
          {"fit", to_string(report.fit)},
          {"stages", stages}};
}

} // namespace foreplan

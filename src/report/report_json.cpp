#include "plan/read_plan.hpp"
#include "report/report.hpp"

#include <nlohmann/json.hpp>

namespace foreplan {

namespace {

using Json = nlohmann::ordered_json;

Json to_json(Breakdown const& b) {
  Json json{{"compute_gemm_s", b.compute[0].value()},
            {"compute_attention_s", b.compute[1].value()},
            {"compute_memory_bound_s", b.compute[2].value()},
            {"exposed_tp_s", b.exposed_tp.value()},
            {"exposed_dp_s", b.exposed_dp.value()},
            {"exposed_pp_s", b.exposed_pp.value()},
            {"host_s", b.host.value()},
            {"bubble_s", b.bubble.value()},
            {"hidden_tp_s", b.hidden_tp.value()},
            {"hidden_dp_s", b.hidden_dp.value()},
            {"hidden_pp_s", b.hidden_pp.value()},
            {"communicating_s", b.communicating.value()},
            {"overlapped_s", b.overlapped.value()}};
  if (b.exposed_cp + b.hidden_cp > Seconds(0)) {
    json["exposed_cp_s"] = b.exposed_cp.value();
    json["hidden_cp_s"] = b.hidden_cp.value();
  }
  if (b.exposed_offload + b.hidden_offload > Seconds(0)) {
    json["exposed_offload_s"] = b.exposed_offload.value();
    json["hidden_offload_s"] = b.hidden_offload.value();
  }
  return json;
}

// "matrix_products_s"
std::string key_of(PathKind kind) {
  std::string key(to_string(kind));
  for (char& c : key)
    if (c == ' ' || c == '-')
      c = '_';
  return key + "_s";
}

// Of every step, if only for nought seconds; the others are named where they are.
bool is_always_there(PathKind kind) {
  switch (kind) {
    case PathKind::cp:
    case PathKind::host_optimizer:
    case PathKind::host_copy:
    case PathKind::drive: return false;
    default: return true;
  }
}

Json to_json(PathSeconds const& seconds) {
  Json json;
  for (std::size_t k = 0; k < path_kinds; ++k)
    if (is_always_there(static_cast<PathKind>(k)) || seconds[k] > Seconds(0))
      json[key_of(static_cast<PathKind>(k))] = seconds[k].value();
  return json;
}

Json to_json(CriticalPath const& path) {
  Json legs = Json::array();
  for (PathLeg const& leg : path.legs)
    legs.push_back({{"part", leg.part == PathPart::forward ? "passes" : to_string(leg.part)},
                    {"first_stage", leg.first.value()},
                    {"last_stage", leg.last.value()},
                    {"forwards", leg.forwards},
                    {"backwards", leg.backwards},
                    {"time_s", leg.time.value()},
                    {"transfers", leg.transfers},
                    {"transfer_time_s", leg.transfer_time.value()}});
  Json by_stage = Json::array();
  for (Seconds seconds : path.by_stage)
    by_stage.push_back(seconds.value());
  return {{"in_words", in_words(path)}, {"by_kind", to_json(path.by_kind)}, {"by_stage_s", by_stage}, {"legs", legs}};
}

// What HolisticTraceAnalysis' temporal breakdown says of a rank's trace.
Json trace_view(Breakdown const& b, Seconds step) {
  return {{"compute", b.compute_total() / step},
          {"non_compute", b.non_compute() / step},
          {"idle", 1 - (b.compute_total() + b.non_compute()) / step},
          {"overlap", overlap(b)}};
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
  Json plan = Json::parse(plan_json(report.plan));
  plan.erase("format"); // the report's says enough
  Json json{{"model", report.model},
            {"hardware", report.hardware},
            {"devices", report.devices},
            {"plan", plan},
            {"engine", report.engine},
            {"items", report.items},
            {"step_s", report.step.value()},
            {"step_band", report.band},
            {"step_band_known", report.band_known},
            {"step_band_convention", band_convention},
            {"tokens_per_s", report.tokens_per_second},
            {"tokens_per_s_per_device", report.tokens_per_second / report.devices},
            {"mfu", report.mfu},
            {"flops_per_token", report.flops_per_token.value()},
            {"mfu_convention", mfu_convention},
            {"hfu", report.hfu},
            {"executed_flops", report.executed_flops.value()},
            {"hfu_convention", hfu_convention},
            {"breakdown", to_json(report.breakdown)},
            {"imbalance", {{"slowest_stage", imbalance(report).slowest.value()}, {"excess", imbalance(report).excess}}},
            {"trace_view", trace_view(report.breakdown, report.step)},
            {"critical_path", to_json(report.critical_path)},
            {"usable_memory_B", report.usable_memory.value()},
            {"peak_memory_B", report.peak_memory.value()},
            {"reserved_memory_B", report.reserved_memory.value()},
            {"memory_not_modelled", memory_not_modelled},
            {"headroom", report.headroom},
            {"fit", to_string(report.fit)},
            {"needed_memory_B", report.needed_memory.value()},
            {"fit_probability", report.fit_probability},
            {"risk", report.risk},
            {"stages", stages}};
  if (report.host_memory > Bytes(0))
    json["host_memory_B"] = report.host_memory.value();
  if (report.disk_memory > Bytes(0))
    json["disk_memory_B"] = report.disk_memory.value();
  return json;
}

} // namespace foreplan

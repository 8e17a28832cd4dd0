#include "planner/fit.hpp"
#include "cli/command.hpp"
#include "cli/plan_options.hpp"
#include "plan/plan_checker.hpp"
#include "planner/estimators.hpp"
#include "report/table.hpp"
#include "units/text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <iostream>

namespace foreplan {

namespace {

std::string price(Seconds step, Seconds before) { return fmt::format("{:+.1f} %", 100 * (step / before - 1)); }

std::string changes_table(FitVerdict const& verdict, std::size_t top) {
  std::vector<std::vector<std::string>> rows{{"change", "peak", "of usable", "step", "price"}};
  for (std::size_t i = 0; i < verdict.changes.size() && i < top; ++i) {
    Change const& change = verdict.changes[i];
    rows.push_back({change.what, to_string(change.peak),
                    fmt::format("{:.1f} %", 100 * (change.peak / verdict.report.usable_memory)), to_string(change.step),
                    price(change.step, verdict.step)});
  }
  return table(rows);
}

std::string answer(FitVerdict const& verdict, std::size_t top) {
  Report const& report = verdict.report;
  if (report.fit == Fit::fits)
    return verdict.largest_micro_batch > report.plan.micro_batch
               ? fmt::format("It would still fit with a micro-batch of {}.\n", verdict.largest_micro_batch)
               : std::string();
  std::string const goal = fmt::format("make it fit with {:.0f} % headroom", 100 * report.headroom);
  if (verdict.changes.empty()) {
    std::string text = fmt::format("None of {} changes, alone or together, would {}.\n", verdict.tried, goal);
    if (verdict.closest)
      text += fmt::format("Closest: {}: {} of {}. More devices, or a smaller model or sequence, are needed.\n",
                          verdict.closest->what, to_string(verdict.closest->peak), to_string(report.usable_memory));
    return text;
  }
  return fmt::format("{} of {} changes{} {}; the step takes {} without (if the memory were there):\n\n",
                     verdict.changes.size(), verdict.tried,
                     verdict.changes_at_once > 1 ? fmt::format(", {} at once,", verdict.changes_at_once) : "", goal,
                     to_string(verdict.step)) +
         changes_table(verdict, top);
}

std::string text_of(FitVerdict const& verdict, std::size_t top) {
  Report const& report = verdict.report;
  std::string text = fmt::format("{} on {} x {}, {}\n", report.model, report.devices, report.hardware,
                                 describe(report.plan));
  return text + memory_sentence(report) + report.risk + '\n' + memory_table(report) + '\n' + answer(verdict, top);
}

nlohmann::ordered_json json_of(Change const& change, FitVerdict const& verdict) {
  nlohmann::ordered_json json{{"what", change.what},
                              {"plan", describe(change.plan)},
                              {"peak_memory_B", change.peak.value()},
                              {"fit", to_string(change.fit)}};
  if (change.step > Seconds(0)) {
    json["step_s"] = change.step.value();
    json["price"] = change.step / verdict.step - 1;
  }
  return json;
}

nlohmann::ordered_json json_of(FitVerdict const& verdict) {
  nlohmann::ordered_json json{{"format", "foreplan fit 1"}};
  nlohmann::ordered_json const report = to_json(verdict.report);
  for (char const* key :
       {"model", "hardware", "devices", "plan", "usable_memory_B", "peak_memory_B", "reserved_memory_B",
        "memory_not_modelled", "headroom", "fit", "needed_memory_B", "fit_probability", "risk", "stages"})
    json[key] = report[key];
  json["stage"] = fullest_stage(verdict.report).stage.value();
  json["moment"] = fullest_stage(verdict.report).peak_moment;
  json["step_s"] = verdict.step.value();
  json["changes"] = nlohmann::ordered_json::array();
  for (Change const& change : verdict.changes)
    json["changes"].push_back(json_of(change, verdict));
  json["changes_at_once"] = verdict.changes_at_once;
  json["changes_tried"] = verdict.tried;
  json["closest"] = verdict.closest ? json_of(*verdict.closest, verdict) : nlohmann::ordered_json();
  return json;
}

// One of DeepSpeed's estimates beside what the plan needs here.
struct Compared {
  Estimate estimate;
  std::optional<MemoryNeeds> needs; // none: such a plan is not legal
};

std::vector<Compared> compared_estimates(PlanCase const& test) {
  std::vector<Compared> result;
  Plan const& plan = test.plan;
  for (Estimate& estimate : deepspeed_estimates(estimated(test.model), plan.world_size(), test.cluster.nodes, plan)) {
    bool const is_legal = check(test.model, estimate.plan).empty();
    result.push_back({std::move(estimate), {}});
    if (is_legal)
      result.back().needs = memory_needs(test.model, result.back().estimate.plan);
  }
  return result;
}

std::string estimates_text(PlanCase const& test) {
  std::vector<std::vector<std::string>> rows{{"options", "DeepSpeed: device", "as documented", "here: peak", "left out",
                                              "DeepSpeed: node", "as documented", "here: node"}};
  auto cell = [](Bytes bytes) { return bytes > Bytes(0) ? to_string(bytes) : std::string("-"); };
  for (Compared const& row : compared_estimates(test)) {
    Estimate const& e = row.estimate;
    double const devices = static_cast<double>(e.plan.dp) / test.cluster.nodes;
    rows.push_back({e.options, to_string(e.device), cell(e.documented), row.needs ? to_string(row.needs->device) : "-",
                    row.needs && row.needs->device > e.device ? to_string(row.needs->device - e.device) : "-",
                    cell(e.host), cell(e.documented_host), row.needs ? cell(row.needs->host * devices) : "-"});
  }
  return "DeepSpeed's estimators know model states alone; a run also holds activations, gathered layers and "
         "buckets.\n\n" +
         table(rows);
}

nlohmann::ordered_json estimates_json(PlanCase const& test) {
  nlohmann::ordered_json json{{"format", "foreplan estimates 1"}, {"estimates", nlohmann::ordered_json::array()}};
  for (Compared const& row : compared_estimates(test)) {
    nlohmann::ordered_json estimate{{"options", row.estimate.options},
                                    {"device_B", row.estimate.device.value()},
                                    {"documented_device_B", row.estimate.documented.value()},
                                    {"node_B", row.estimate.host.value()},
                                    {"documented_node_B", row.estimate.documented_host.value()}};
    if (row.needs) {
      estimate["peak_memory_B"] = row.needs->device.value();
      estimate["host_memory_B"] = row.needs->host.value();
    }
    json["estimates"].push_back(std::move(estimate));
  }
  return json;
}

} // namespace

int run_fit(std::vector<std::string> const& arguments) {
  cxxopts::Options options("foreplan fit", "Does a plan fit in memory, and if not, what makes it fit at which price?");
  add_plan_options(options);
  auto text = [] { return cxxopts::value<std::string>(); };
  // clang-format off
  options.add_options()
      ("headroom", "share of the memory that must stay free", text()->default_value("14 %"))
      ("top", "changes to list", text()->default_value("10"))
      ("estimators", "instead: DeepSpeed's estimates for ZeRO 2 and 3 on these devices, beside what is needed here")
      ("json", "print JSON");
  // clang-format on
  add_allow_option(options);
  auto const parsed = parse(options, arguments);
  if (!parsed)
    return 0;
  PlanCase const test = plan_case_of(*parsed);
  if (parsed->count("estimators") > 0) {
    std::cout << (parsed->count("json") > 0 ? estimates_json(test).dump(2) + '\n' : estimates_text(test));
    return 0;
  }
  auto const& [model, plan, cluster] = test;
  FitVerdict const verdict = fit_verdict(model, plan, cluster, share(*parsed, "headroom"),
                                         allows_offload(*parsed, cluster.profile));
  if (parsed->count("json") > 0)
    std::cout << json_of(verdict).dump(2) << '\n';
  else
    std::cout << text_of(verdict, static_cast<std::size_t>(whole_number(*parsed, "top", 1, 1000)));
  return verdict.report.fit == Fit::too_large ? 1 : 0;
}

} // namespace foreplan

#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/plan_options.hpp"
#include "cluster/read_profile.hpp"
#include "model/read_model.hpp"
#include "planner/search.hpp"
#include "report/table.hpp"
#include "units/text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <iostream>

#include <unistd.h>

namespace foreplan {

namespace {

std::string percent(double value) { return fmt::format("{:.1f} %", 100 * value); }

std::string yes(bool value) { return value ? "yes" : "-"; }

std::vector<std::string> plan_cells(Plan const& plan) {
  return {fmt::format("{}", plan.tp),          fmt::format("{}", plan.pp),
          fmt::format("{}", plan.chunks),      fmt::format("{}", plan.dp),
          fmt::format("{}", plan.micro_batch), yes(plan.sequence_parallel),
          fmt::format("{}", plan.zero_stage),  std::string(to_string(plan.recompute))};
}

std::string candidates_table(std::vector<Candidate> const& candidates, std::size_t top, SearchRequest const& request) {
  std::vector<std::vector<std::string>> rows{{"#", "tp", "pp", "chunks", "dp", "micro-batch", "sp", "zero", "recompute",
                                              "step", "tokens/s/device", "peak", "of usable"}};
  for (std::size_t i = 0; i < candidates.size() && i < top; ++i) {
    Candidate const& c = candidates[i];
    std::vector<std::string> row{fmt::format("{}", i + 1)};
    for (std::string& cell : plan_cells(c.plan))
      row.push_back(std::move(cell));
    double const tokens = static_cast<double>(c.plan.global_batch * c.plan.sequence_length);
    row.push_back(to_string(c.step));
    row.push_back(fmt::format("{:.0f}", tokens / c.step.value() / c.plan.world_size()));
    row.push_back(to_string(c.peak));
    row.push_back(percent(c.peak / usable_memory(request.cluster.profile)));
    rows.push_back(std::move(row));
  }
  return table(rows);
}

std::string sentence(SearchRequest const& request, SearchResult const& result) {
  if (result.finalists.empty()) {
    if (!result.borderline.empty())
      return fmt::format(
          "No plan leaves {} of the memory free; {} fit without that headroom, the fastest in {} a step.\n",
          percent(request.headroom), result.lack_headroom, to_string(result.borderline[0].step));
    if (!result.nearest_miss)
      return fmt::format("None of {} combinations is legal for {} on {} devices with a batch of {}.\n",
                         result.enumerated, request.model.name, request.cluster.devices(), request.global_batch);
    Candidate const& miss = *result.nearest_miss;
    return fmt::format("Nothing fits: the plan that needs least ({}) takes {} of {} usable, {} too much.\n",
                       describe(miss.plan), to_string(miss.peak), to_string(usable_memory(request.cluster.profile)),
                       to_string(miss.peak - usable_memory(request.cluster.profile)));
  }
  Report const& best = result.finalists[0];
  std::string text = fmt::format("Best for {} on {} x {}: {}, {} a step ({:.0f} tokens/s per device, MFU {})",
                                 best.model, best.devices, best.hardware, describe(best.plan), to_string(best.step),
                                 best.tokens_per_second / best.devices, percent(best.mfu));
  if (result.finalists.size() > 1)
    text += fmt::format(", {} ahead of the next", percent(result.finalists[1].step / best.step - 1));
  return text + ".\n";
}

std::string text_of(SearchRequest const& request, SearchResult const& result, std::size_t top) {
  std::string text = sentence(request, result);
  text += fmt::format("  {} combinations, {} legal: {} fit, {} lack headroom ({}), {} too large for {}.\n",
                      result.enumerated, result.legal, result.fit, result.lack_headroom,
                      percent(request.headroom), result.too_large, to_string(usable_memory(request.cluster.profile)));
  if (!result.ranked.empty())
    text += "\nRanked by the fast engine on segments:\n" + candidates_table(result.ranked, top, request);
  if (!result.borderline.empty())
    text += fmt::format("\nLack headroom ({} of the memory is to stay free); not ranked above:\n",
                        percent(request.headroom)) +
            candidates_table(result.borderline, std::min<std::size_t>(top, 3), request);
  for (std::size_t i = 0; i < result.finalists.size(); ++i)
    text += fmt::format("\n[{}] ", i + 1) + to_text(result.finalists[i]);
  return text;
}

nlohmann::ordered_json json_of(Candidate const& candidate) {
  return {{"plan", describe(candidate.plan)},
          {"tp", candidate.plan.tp},
          {"pp", candidate.plan.pp},
          {"chunks", candidate.plan.chunks},
          {"dp", candidate.plan.dp},
          {"micro_batch", candidate.plan.micro_batch},
          {"sequence_parallel", candidate.plan.sequence_parallel},
          {"zero_stage", candidate.plan.zero_stage},
          {"recompute", to_string(candidate.plan.recompute)},
          {"step_s", candidate.step.value()},
          {"peak_memory_B", candidate.peak.value()},
          {"fit", to_string(candidate.fit)}};
}

nlohmann::ordered_json json_of(SearchRequest const& request, SearchResult const& result, std::size_t top) {
  nlohmann::ordered_json json{{"format", "foreplan plans 1"},
                              {"model", request.model.name},
                              {"hardware", request.cluster.profile.name},
                              {"nodes", request.cluster.nodes},
                              {"enumerated", result.enumerated},
                              {"legal", result.legal},
                              {"fit", result.fit},
                              {"lack_headroom", result.lack_headroom},
                              {"too_large", result.too_large},
                              {"finalists", nlohmann::ordered_json::array()},
                              {"ranked", nlohmann::ordered_json::array()},
                              {"borderline", nlohmann::ordered_json::array()},
                              {"nearest_miss", nullptr}};
  for (Report const& report : result.finalists)
    json["finalists"].push_back(to_json(report));
  for (std::size_t i = 0; i < result.ranked.size() && i < top; ++i)
    json["ranked"].push_back(json_of(result.ranked[i]));
  for (std::size_t i = 0; i < result.borderline.size() && i < top; ++i)
    json["borderline"].push_back(json_of(result.borderline[i]));
  if (result.nearest_miss)
    json["nearest_miss"] = json_of(*result.nearest_miss);
  return json;
}

// A line on the terminal that is written over; nothing where nobody looks.
Progress progress_line() {
  if (isatty(STDERR_FILENO) == 0)
    return {};
  return [](std::size_t done, std::size_t all, Seconds best) {
    if (done % 16 != 0 && done != all)
      return;
    std::cerr << fmt::format("\r{} of {} plans, best {}          ", done, all,
                             best > Seconds(0) ? to_string(best) + " a step" : "none yet");
    if (done == all)
      std::cerr << "\r\033[K";
    std::cerr.flush();
  };
}

} // namespace

int run_plan(std::vector<std::string> const& arguments) {
  cxxopts::Options options("foreplan plan", "Finds the best plan for a model on a cluster.");
  options.add_options()("model", "model file (models/*.json)", cxxopts::value<std::string>())(
      "hardware", "hardware profile (hardware_profiles/*.json)", cxxopts::value<std::string>())(
      "nodes", "nodes of the cluster", cxxopts::value<std::string>())("seq-len", "tokens of a sequence",
                                                                      cxxopts::value<std::string>())(
      "global-batch", "sequences of a step, over all devices", cxxopts::value<std::string>())(
      "headroom", "share of the memory that must stay free", cxxopts::value<std::string>()->default_value("14 %"))(
      "top", "plans to list", cxxopts::value<std::string>()->default_value("10"))(
      "finalists", "plans to run again on SimGrid", cxxopts::value<std::string>()->default_value("3"))(
      "threads", "of the search; 0: all", cxxopts::value<std::string>()->default_value("0"))("json", "print JSON");
  auto const parsed = parse(options, arguments);
  if (!parsed)
    return 0;
  SearchRequest request;
  request.model = read_model(required_text(*parsed, "model"));
  request.cluster.profile = read_profile(required_text(*parsed, "hardware"));
  request.cluster.nodes = static_cast<int>(required_whole_number(*parsed, "nodes", 1, 100'000));
  request.sequence_length = required_whole_number(*parsed, "seq-len", 1, 1 << 24);
  request.global_batch = required_whole_number(*parsed, "global-batch", 1, 1 << 24);
  request.headroom = share(*parsed, "headroom");
  request.finalists = static_cast<int>(whole_number(*parsed, "finalists", 1, 100));
  request.threads = static_cast<unsigned>(whole_number(*parsed, "threads", 0, 1024));
  auto const top = static_cast<std::size_t>(whole_number(*parsed, "top", 1, 100'000));
  request.keep = std::max<std::size_t>(top, static_cast<std::size_t>(request.finalists));

  Plan smallest; // what is wrong with it is wrong with the model: no plan is legal
  smallest.sequence_length = request.sequence_length;
  smallest.global_batch = 1;
  refuse_illegal(request.model, smallest);

  SearchResult const result = search(request, progress_line());
  if (parsed->count("json") > 0)
    std::cout << json_of(request, result, top).dump(2) << '\n';
  else
    std::cout << text_of(request, result, top);
  return result.ranked.empty() && result.borderline.empty() ? 1 : 0;
}

} // namespace foreplan

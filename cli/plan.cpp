#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/plan_options.hpp"
#include "cluster/read_profile.hpp"
#include "model/read_model.hpp"
#include "planner/search.hpp"
#include "report/compare.hpp"
#include "report/table.hpp"
#include "units/text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <iostream>

#include <unistd.h>

namespace foreplan {

namespace {

std::string percent(double value) { return fmt::format("{:.1f} %", 100 * value); }

std::string yes(bool value) { return value ? "yes" : "-"; }

// "full"; "full of 6": of the first 6 blocks of every chunk.
std::string recompute_text(Plan const& plan) {
  std::string text(to_string(plan.recompute));
  if (plan.recompute != Recompute::none && plan.recompute_layers >= 0)
    text += fmt::format(" of {}", plan.recompute_layers);
  return text;
}

std::vector<std::string> plan_cells(Plan const& plan) {
  return {fmt::format("{}", plan.tp),          fmt::format("{}", plan.pp),
          fmt::format("{}", plan.chunks),      fmt::format("{}", plan.dp),
          fmt::format("{}", plan.micro_batch), yes(plan.sequence_parallel),
          fmt::format("{}", plan.zero_stage),  recompute_text(plan)};
}

// "4 ring"; "-": every rank holds whole sequences.
std::string cp_cell(Plan const& plan) {
  return plan.cp > 1 ? fmt::format("{} {}", plan.cp, to_string(plan.cp_type)) : "-";
}

// "37 % host", "host; params disk; ckpt": optimizer, parameters, checkpoints.
std::string offload_cell(Plan const& plan) {
  Offload const& offload = plan.offload;
  std::string text;
  auto add = [&](std::string const& part) { text += (text.empty() ? "" : "; ") + part; };
  if (offload.optimizer != MemoryTier::device)
    add(fmt::format("{}{}", offload.ratio < 1 ? fmt::format("{:.0f} % ", 100 * offload.ratio) : "",
                    to_string(offload.optimizer)));
  if (offload.parameters != MemoryTier::device)
    add(fmt::format("params {}", to_string(offload.parameters)));
  if (offload.checkpoints)
    add("ckpt");
  return text.empty() ? "-" : text;
}

// "hpZ", "hpZ qwZ qgZ"; "-": none of ZeRO++.
std::string zero_pp_cell(Plan const& plan) {
  Sharding const& sharding = plan.sharding;
  std::string text;
  auto add = [&](bool is_on, std::string_view part) {
    if (is_on)
      text += (text.empty() ? "" : " ") + std::string(part);
  };
  add(sharding.secondary_shard, "hpZ");
  add(sharding.weight_bits > 0, "qwZ");
  add(sharding.gradient_bits > 0, "qgZ");
  return text.empty() ? "-" : text;
}

// How tensor-parallel communication hides; "-": as it is.
std::string overlap_cell(Plan const& plan) {
  if (plan.tp_overlap)
    return "tp overlap";
  return plan.domino_slices > 1 ? fmt::format("Domino {}", to_string(plan.domino)) : "-";
}

std::string layout_cell(Plan const& plan) { return plan.layout.empty() ? "-" : layout_text(plan.layout); }

// Of schedules with a split backward: the others' names follow from the chunks.
std::string schedule_cell(Plan const& plan) {
  return splits_backward(plan.schedule) ? std::string(to_string(plan.schedule)) : "-";
}

// Columns that stand in a table only where a plan has something to say in them ("-": nothing).
struct OptionalColumn {
  char const* title;
  std::string (*cell)(Plan const& plan);
};
constexpr OptionalColumn optional_columns[] = {{"cp", cp_cell},           {"blocks", layout_cell},
                                               {"offload", offload_cell}, {"overlap", overlap_cell},
                                               {"ZeRO++", zero_pp_cell},  {"schedule", schedule_cell}};

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
  for (OptionalColumn const& column : optional_columns) {
    auto const says = [&](Candidate const& c) { return column.cell(c.plan) != "-"; };
    if (std::none_of(candidates.begin(), candidates.end(), says))
      continue;
    rows[0].emplace_back(column.title);
    for (std::size_t i = 1; i < rows.size(); ++i)
      rows[i].push_back(column.cell(candidates[i - 1].plan));
  }
  return table(rows);
}

// ------------------------------------------------------------------------------------------------- when nothing is found

std::string rejections(SearchResult const& result, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < result.rejected.size() && i < most; ++i)
    text += fmt::format("{}{} x {}", i > 0 ? ", " : "", result.rejected[i].count, result.rejected[i].rule);
  if (result.rejected.size() > most)
    text += fmt::format(", {} rules more", result.rejected.size() - most);
  return text;
}

std::string none_legal(SearchRequest const& request, SearchResult const& result) {
  std::string text = wrapped(
      "", fmt::format("None of {} combinations is legal for {} on {} devices with a batch of {} sequences. They "
                      "break, for example:",
                      result.enumerated, request.model.name, request.cluster.devices(), request.global_batch));
  for (std::size_t i = 0; i < result.rejected.size() && i < 5; ++i)
    text += wrapped(fmt::format("  {} x {}: ", result.rejected[i].count, result.rejected[i].rule),
                    result.rejected[i].example);
  return text;
}

std::string none_fits(SearchRequest const& request, SearchResult const& result) {
  Candidate const& miss = *result.nearest_miss;
  Bytes const usable = usable_memory(request.cluster.profile);
  std::string text = wrapped(
      "", fmt::format("Nothing fits: of {} legal plans the one that needs least memory ({}) takes {} of "
                      "{} usable, {} too much.",
                      result.legal, describe(miss.plan), to_string(miss.peak), to_string(usable),
                      to_string(miss.peak - usable)));
  if (int const nodes = nodes_that_fit(request); nodes > 0)
    text += fmt::format("With {} nodes ({} devices) the model would fit.\n", nodes,
                        nodes * request.cluster.profile.node.devices);
  if (!request.constraints.empty())
    text += fmt::format("Left out by what was asked for: {}.\n", rejections(result, 5));
  return text;
}

std::string none_found(SearchRequest const& request, SearchResult const& result) {
  if (result.stopped)
    return fmt::format("Stopped before a plan was found; {} plans are legal.\n", result.legal);
  if (!result.borderline.empty())
    return wrapped(
        "", fmt::format("No plan leaves {} of the memory free; {} fit without that headroom, the fastest in {} a "
                        "step ({}).",
                        percent(request.headroom), result.lack_headroom, to_string(result.borderline[0].step),
                        describe(result.borderline[0].plan)));
  return result.nearest_miss ? none_fits(request, result) : none_legal(request, result);
}

// -------------------------------------------------------------------------------------------------------------- the best

std::string sentence(SearchRequest const& request, SearchResult const& result) {
  if (result.finalists.empty() && result.ranked.empty())
    return none_found(request, result);
  if (result.finalists.empty())
    return wrapped(
        "", fmt::format("Best: {}, {} a step.", describe(result.ranked[0].plan), to_string(result.ranked[0].step)));
  Report const& best = result.finalists[0];
  std::string text = fmt::format("Best for {} on {} x {}: {}, {} a step ({:.0f} tokens/s per device, MFU {})",
                                 best.model, best.devices, best.hardware, describe(best.plan), to_string(best.step),
                                 best.tokens_per_second / best.devices, percent(best.mfu));
  if (result.finalists.size() > 1)
    text += fmt::format(", {} ahead of the next", percent(result.finalists[1].step / best.step - 1));
  return wrapped("", text + (result.stopped ? ". Stopped: there may be a better one." : "."));
}

// What the runners-up lose by, part by part.
std::string why_they_lose(SearchResult const& result) {
  std::string text;
  for (std::size_t i = 1; i < result.reports.size(); ++i) {
    Report const &best = result.reports[0], &other = result.reports[i];
    text += wrapped(fmt::format("  #{:<3}", i + 1),
                    fmt::format("{:+.1f} %: {}; memory {} against {}", 100 * (other.step / best.step - 1),
                                main_differences(compare(best, other)), to_string(other.peak_memory),
                                to_string(best.peak_memory)));
  }
  return text.empty() ? text : "\nwhy they are slower than #1:\n" + text;
}

std::string borderline_text(SearchRequest const& request, SearchResult const& result, std::size_t top) {
  if (result.borderline.empty())
    return {};
  std::string text = fmt::format("\nleave less than {} of the memory free, so not ranked above:\n",
                                 percent(request.headroom));
  return text + candidates_table(result.borderline, std::min<std::size_t>(top, 3), request);
}

// "tp 8 pp 2x8 dp 4 sp zero 1 b 1": pp stages x chunks, micro-batch b.
std::string describe_short(Plan const& plan) {
  std::string text = fmt::format("tp {} pp {}", plan.tp, plan.pp);
  if (plan.chunks > 1)
    text += fmt::format("x{}", plan.chunks);
  if (splits_backward(plan.schedule))
    text += fmt::format(" {}", to_string(plan.schedule));
  if (plan.cp > 1)
    text += fmt::format(" cp {} {}", plan.cp, to_string(plan.cp_type));
  text += fmt::format(" dp {}", plan.dp);
  if (plan.sequence_parallel)
    text += " sp";
  if (overlap_cell(plan) != "-")
    text += " " + overlap_cell(plan);
  text += fmt::format(" zero {} b {}", plan.zero_stage, plan.micro_batch);
  if (plan.recompute != Recompute::none)
    text += fmt::format(" {} recompute", recompute_text(plan));
  return text;
}

// Where the step of each finalist goes, in one line each.
std::string checked_text(SearchResult const& result) {
  if (result.finalists.empty())
    return "";
  std::vector<std::vector<std::string>> rows{
      {"plan", "step", "compute", "exposed tp", "dp", "pp", "host", "bubble", "peak memory"}};
  for (Report const& report : result.finalists) {
    Breakdown const& b = report.breakdown;
    std::vector<std::string> row{describe_short(report.plan)};
    for (Seconds part : {report.step, b.compute_total(), b.exposed_tp, b.exposed_dp, b.exposed_pp, b.host, b.bubble})
      row.push_back(to_string(part));
    row.push_back(to_string(report.peak_memory));
    rows.push_back(std::move(row));
  }
  return "run again on SimGrid, kernel by kernel; seconds of a step, mean over ranks\n" + table(rows);
}

std::string text_of(SearchRequest const& request, SearchResult const& result, std::size_t top) {
  std::string text = sentence(request, result);
  text += wrapped("  ", fmt::format("{} combinations, {} legal: {} fit, {} lack headroom ({}), {} too large for {}.",
                                    result.enumerated, result.legal, result.fit, result.lack_headroom,
                                    percent(request.headroom), result.too_large,
                                    to_string(usable_memory(request.cluster.profile))));
  if (result.partly_recomputed > 0)
    text += wrapped("  ",
                    fmt::format("{} more that might be faster: full recompute of only as many blocks of every chunk as "
                                "memory asks for.",
                                result.partly_recomputed));
  if (!result.rejected.empty() && result.legal > 0)
    text += wrapped("  ", fmt::format("Not legal: {}.", rejections(result, 4)));
  if (!result.ranked.empty())
    text += "\nranked by the fast engine on segments\n" + candidates_table(result.ranked, top, request);
  text += why_they_lose(result) + borderline_text(request, result, top);
  if (!result.finalists.empty())
    text += '\n' + checked_text(result) + '\n' + to_text(result.finalists[0]);
  return text;
}

nlohmann::ordered_json json_of(Candidate const& candidate) { // how it shares out sequences, "plan" says
  return {{"plan", describe(candidate.plan)},
          {"tp", candidate.plan.tp},
          {"pp", candidate.plan.pp},
          {"chunks", candidate.plan.chunks},
          {"schedule", to_string(candidate.plan.schedule)},
          {"dp", candidate.plan.dp},
          {"micro_batch", candidate.plan.micro_batch},
          {"sequence_parallel", candidate.plan.sequence_parallel},
          {"zero_stage", candidate.plan.zero_stage},
          {"recompute", to_string(candidate.plan.recompute)},
          {"recompute_layers", candidate.plan.recompute_layers},
          {"layout", candidate.plan.layout},
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
                              {"partly_recomputed", result.partly_recomputed},
                              {"too_large", result.too_large},
                              {"stopped", result.stopped},
                              {"rejected", nlohmann::ordered_json::array()},
                              {"finalists", nlohmann::ordered_json::array()},
                              {"ranked", nlohmann::ordered_json::array()},
                              {"borderline", nlohmann::ordered_json::array()},
                              {"nearest_miss", nullptr}};
  for (Rejection const& rejection : result.rejected)
    json["rejected"].push_back({{"rule", rejection.rule}, {"count", rejection.count}, {"example", rejection.example}});
  for (Report const& report : result.finalists)
    json["finalists"].push_back(to_json(report));
  for (std::size_t i = 0; i < result.ranked.size() && i < top; ++i)
    json["ranked"].push_back(json_of(result.ranked[i]));
  for (std::size_t i = 0; i < result.borderline.size() && i < top; ++i)
    json["borderline"].push_back(json_of(result.borderline[i]));
  for (std::size_t i = 1; i < result.reports.size() && i < top; ++i)
    json["ranked"][i]["against_best"] = to_json(compare(result.reports[0], result.reports[i]));
  if (result.nearest_miss)
    json["nearest_miss"] = json_of(*result.nearest_miss);
  return json;
}

// Set by Ctrl-C: the search ends with the best so far. A second Ctrl-C ends the program.
std::atomic<bool> interrupted = false;

void interrupt(int signal) {
  interrupted = true;
  std::signal(signal, SIG_DFL);
}

std::vector<Constraint> constraints_of(cxxopts::ParseResult const& parsed) {
  std::vector<Constraint> constraints;
  for (char const* option : {"require", "forbid"})
    if (parsed.count(option) > 0)
      for (std::string const& text : parsed[option].as<std::vector<std::string>>())
        constraints.push_back(read_constraint(fmt::format("--{}", option), text));
  return constraints;
}

std::string bar(std::size_t done, std::size_t all) {
  std::size_t const filled = all > 0 ? 20 * done / all : 20;
  return '[' + std::string(filled, '#') + std::string(20 - filled, ' ') + ']';
}

// A line on the terminal that is written over; nothing where nobody looks.
Progress progress_line() {
  if (isatty(STDERR_FILENO) == 0)
    return {};
  auto const start = std::chrono::steady_clock::now();
  return [start](std::size_t done, std::size_t all, Seconds best) {
    if (done % 16 != 0 && done != all)
      return;
    std::chrono::duration<double> const elapsed = std::chrono::steady_clock::now() - start;
    std::cerr << fmt::format("\r{} {} of {} plans, {:.0f}/s, best {}          ", bar(done, all), done, all,
                             static_cast<double>(done) / std::max(1e-3, elapsed.count()),
                             best > Seconds(0) ? to_string(best) + " a step" : "none yet");
    if (done == all)
      std::cerr << "\r\033[K";
    std::cerr.flush();
  };
}

} // namespace

int run_plan(std::vector<std::string> const& arguments) {
  cxxopts::Options options("foreplan plan", "Finds the best plan for a model on a cluster.");
  auto text = [] { return cxxopts::value<std::string>(); };
  // clang-format off
  options.add_options()
      ("model", "model file (models/*.json)", text())
      ("hardware", "hardware profile (hardware_profiles/*.json)", text())
      ("nodes", "nodes of the cluster", text())
      ("seq-len", "tokens of a sequence", text())
      ("global-batch", "sequences of a step, over all devices", text())
      ("framework", framework_help, text())
      ("require", "only plans for which this holds, as tp=8, pp<=4, recompute!=full; may be given again",
       cxxopts::value<std::vector<std::string>>())
      ("forbid", "no plans for which this holds, as recompute=full; may be given again",
       cxxopts::value<std::vector<std::string>>())
      ("headroom", "share of the memory that must stay free", text()->default_value("14 %"))
      ("top", "plans to list", text()->default_value("10"))
      ("finalists", "plans to run again on SimGrid", text()->default_value("3"))
      ("threads", "of the search; 0: all", text()->default_value("0"))
      ("json", "print JSON");
  // clang-format on
  add_allow_option(options);
  auto const parsed = parse(options, arguments);
  if (!parsed)
    return 0;
  SearchRequest request;
  request.model = read_model(required_text(*parsed, "model"));
  request.cluster.profile = read_profile(required_text(*parsed, "hardware"));
  request.cluster.nodes = static_cast<int>(required_whole_number(*parsed, "nodes", 1, 100'000));
  request.sequence_length = required_whole_number(*parsed, "seq-len", 1, 1 << 24);
  request.global_batch = required_whole_number(*parsed, "global-batch", 1, 1 << 24);
  if (parsed->count("framework") > 0)
    request.framework = framework_of(*parsed);
  request.headroom = share(*parsed, "headroom");
  request.finalists = static_cast<int>(whole_number(*parsed, "finalists", 1, 100));
  request.threads = static_cast<unsigned>(whole_number(*parsed, "threads", 0, 1024));
  auto const top = static_cast<std::size_t>(whole_number(*parsed, "top", 1, 100'000));
  request.keep = std::max<std::size_t>(top, static_cast<std::size_t>(request.finalists));

  Plan smallest; // what is wrong with it is wrong with the model: no plan is legal
  smallest.sequence_length = request.sequence_length;
  smallest.global_batch = 1;
  refuse_illegal(request.model, smallest);

  request.constraints = constraints_of(*parsed);
  request.offload = allows_offload(*parsed, request.cluster.profile);
  request.quantized = allows_quantized(*parsed);
  request.split_schedules = allows_split_schedules(*parsed);
  request.explain = std::min<std::size_t>(top, 5);
  request.stop = &interrupted;
  std::signal(SIGINT, interrupt);

  SearchResult const result = search(request, progress_line());
  if (parsed->count("json") > 0)
    std::cout << json_of(request, result, top).dump(2) << '\n';
  else
    std::cout << text_of(request, result, top);
  return result.ranked.empty() && result.borderline.empty() ? 1 : 0;
}

} // namespace foreplan

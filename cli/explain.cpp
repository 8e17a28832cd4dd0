#include "planner/explain.hpp"
#include "cli/command.hpp"
#include "cli/plan_options.hpp"
#include "io/suggestion.hpp"
#include "planner/explain_offload.hpp"
#include "report/table.hpp"
#include "units/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iostream>

namespace foreplan {

namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string_view to_string(Evidence kind) {
  switch (kind) {
    case Evidence::datasheet: return "datasheet";
    case Evidence::fitted: return "fitted";
    case Evidence::measured: return "measured";
  }
  return "?";
}

std::string operand_lines(OpExplanation const& op) {
  std::string text;
  for (Operand const& operand : op.operands)
    text += fmt::format("  {:<10}{}: {} {} = {}\n", operand.written ? "writes" : "reads", operand.name,
                        fmt::join(operand.shape, " x "), to_string(operand.dtype), to_string(operand.bytes));
  return text;
}

// Lines of the product's model, under the op's.
std::string product_lines(std::string const& lines) {
  std::string text;
  for (std::size_t begin = 0; begin < lines.size();) {
    std::size_t const end = lines.find('\n', begin);
    text += wrapped(begin == 0 ? "  product   " : "            ", lines.substr(begin, end - begin));
    begin = end + 1;
  }
  return text;
}

// Lines of the collective's model, under the op's.
std::string indented(std::string const& lines) {
  std::string text;
  for (std::size_t begin = 0; begin < lines.size();) {
    std::size_t const end = lines.find('\n', begin);
    std::string const line = lines.substr(begin, end - begin);
    std::size_t const label = std::min<std::size_t>(line.size(), begin == 0 ? 0 : 15); // "  formula      "
    text += wrapped(begin == 0 ? "  library   " : std::string(10, ' ') + line.substr(0, label), line.substr(label));
    begin = end + 1;
  }
  return text;
}

std::string cost_lines(OpExplanation const& op) {
  std::string text;
  if (op.communication) {
    text += fmt::format("  group     {}\n  sends     {} from each member\n", op.group, to_string(op.bytes));
    text += fmt::format("  alone     {} = {} latency + {} at {}\n", to_string(op.alone), to_string(op.latency),
                        to_string(op.bytes), to_string(op.rate));
  } else {
    if (op.flops > Flops(0))
      text += fmt::format("  flops     {}: {} at the chip's peak\n", to_string(op.flops), to_string(op.flops_at_peak));
    text += fmt::format("  bytes     {}: {} at the memory's bandwidth\n", to_string(op.bytes),
                        to_string(op.bytes_at_peak));
    text += fmt::format("  alone     {}: {}{} of the memory's bandwidth\n", to_string(op.alone),
                        op.flops > Flops(0) ? percent(op.flops_at_peak / op.alone) + " of peak flops, " : "",
                        percent(op.bytes_at_peak / op.alone));
  }
  text += wrapped("  formula   ", op.formula);
  text += product_lines(op.product) + indented(op.collective);
  text += fmt::format("  rests on  {}{}\n",
                      op.evidence == Evidence::datasheet ? "data sheets and fitted efficiencies of whole classes"
                      : op.evidence == Evidence::fitted  ? "a fit to measurements"
                                                         : "a measurement",
                      op.band > 0 ? fmt::format("; two thirds of left-out measurements within {}", percent(op.band))
                                  : "");
  return text +
         fmt::format(
             "  host      {} to issue it\n  beside    others lose {} of the SMs, and {} of the memory's bandwidth\n",
             to_string(op.issue), percent(op.sm_share), percent(op.memory_bandwidth_share));
}

std::string text_of(OpExplanation const& op) {
  std::string text = fmt::format("{} ({}), {}; stage {}, stream {}; {} times a step on each rank\n", op.name, op.kind,
                                 op.where, op.stage.value(), op.stream, op.times);
  text += operand_lines(op) + cost_lines(op) + "  parameters of the profile\n";
  for (Source const& source : op.parameters)
    text += wrapped(fmt::format("    {} = {}, {}: ", source.key, source.value, to_string(source.kind)), source.source);
  return text;
}

std::string table_of(std::vector<OpExplanation> const& ops) {
  std::vector<std::vector<std::string>> rows{
      {"op", "where", "times", "flops", "bytes", "alone", "in a step", "of peak"}};
  for (OpExplanation const& op : ops)
    rows.push_back({op.name, op.where, fmt::format("{}", op.times), op.flops > Flops(0) ? to_string(op.flops) : "-",
                    to_string(op.bytes), to_string(op.alone), to_string(op.alone * static_cast<double>(op.times)),
                    op.flops > Flops(0) ? percent(op.flops_at_peak / op.alone) : "-"});
  return table(rows);
}

nlohmann::ordered_json json_of(OpExplanation const& op) {
  using Json = nlohmann::ordered_json;
  Json operands = Json::array(), parameters = Json::array();
  for (Operand const& operand : op.operands)
    operands.push_back({{"written", operand.written},
                        {"name", operand.name},
                        {"shape", operand.shape},
                        {"dtype", to_string(operand.dtype)},
                        {"bytes_B", operand.bytes.value()}});
  for (Source const& source : op.parameters)
    parameters.push_back(
        {{"key", source.key}, {"value", source.value}, {"kind", to_string(source.kind)}, {"source", source.source}});
  return {{"name", op.name},
          {"kind", op.kind},
          {"where", op.where},
          {"stage", op.stage.value()},
          {"stream", op.stream},
          {"times", op.times},
          {"operands", operands},
          {"flops", op.flops.value()},
          {"bytes_B", op.bytes.value()},
          {"group", op.group},
          {"latency_s", op.latency.value()},
          {"rate_B_per_s", op.rate.value()},
          {"alone_s", op.alone.value()},
          {"evidence", to_string(op.evidence)},
          {"band", op.band},
          {"issue_s", op.issue.value()},
          {"sm_share", op.sm_share},
          {"memory_bandwidth_share", op.memory_bandwidth_share},
          {"formula", op.formula},
          {"collective", op.collective},
          {"product", op.product},
          {"parameters", parameters}};
}

// "reduce bucket 7": one of many alike, of which bucket 0 stands in lists of names.
bool is_of_later_bucket(OpExplanation const& op) {
  return op.where == "step" && op.name.find_first_of("123456789") != std::string::npos;
}

std::vector<OpExplanation> named(std::vector<OpExplanation> const& ops, std::string const& name) {
  std::vector<OpExplanation> found;
  std::vector<std::string_view> names;
  for (OpExplanation const& op : ops) {
    if (op.name == name)
      found.push_back(op);
    if (!is_of_later_bucket(op) && std::find(names.begin(), names.end(), op.name) == names.end())
      names.push_back(op.name);
  }
  if (found.empty())
    throw InputError(fmt::format("--op {}: no such op on the stage; {}", name, suggestion(name, names)));
  return found;
}

// Those that take most of the step; the rest only counts.
void keep_longest(std::vector<OpExplanation>& ops, std::size_t most) {
  std::stable_sort(ops.begin(), ops.end(), [](OpExplanation const& a, OpExplanation const& b) {
    return a.alone * static_cast<double>(a.times) > b.alone * static_cast<double>(b.times);
  });
  ops.resize(std::min(ops.size(), most));
}

// "12.3 GB/s", or that nobody knows.
std::string rate_cell(BytesPerSecond rate) { return rate > BytesPerSecond(0) ? to_string(rate) : "-"; }

std::string offload_sentence(std::vector<OffloadNeed> const& needs) {
  std::string hidden, exposed, needed;
  bool const is_known = std::any_of(needs.begin(), needs.end(),
                                    [](OffloadNeed const& need) { return need.host > BytesPerSecond(0); });
  for (OffloadNeed const& need : needs) {
    needed += fmt::format("{}{} {} per device", needed.empty() ? "" : ", ", need.what, to_string(need.hides));
    bool const is_hidden = need.exposed == Seconds(0);
    std::string& list = is_hidden ? hidden : exposed;
    list += fmt::format("{}{} ({} per device{})", list.empty() ? "" : ", ", need.what, to_string(need.hides),
                        is_hidden ? "" : ", else " + to_string(need.exposed) + " a step show");
  }
  if (!is_known)
    return wrapped("", "To hide them: " + needed + ". What its hosts give, the profile does not say (node.host).");
  return wrapped("", (hidden.empty() ? std::string("Nothing would hide.") : "Hidden: " + hidden + ".") +
                         (exposed.empty() ? "" : " Not: " + exposed + "."));
}

std::string offload_text(std::vector<OffloadNeed> const& needs) {
  std::vector<std::vector<std::string>> rows{{"outside the device", "a step", "direction", "flop/byte", "hides under",
                                              "which take", "needs", "host gives", "drives give", "exposed"}};
  for (OffloadNeed const& need : needs)
    rows.push_back({need.what, to_string(need.bytes), need.direction, fmt::format("{:.0f}", need.intensity), need.under,
                    to_string(need.time), to_string(need.hides), rate_cell(need.host), rate_cell(need.drives),
                    to_string(need.exposed)});
  return offload_sentence(needs) + "\n" + table(rows) +
         wrapped("  ", "Of the rank that moves most; what a device gets when all of its node copy at once.");
}

nlohmann::ordered_json json_of(OffloadNeed const& need) {
  return {{"what", need.what},
          {"bytes_B", need.bytes.value()},
          {"direction", need.direction},
          {"flop_per_byte", need.intensity},
          {"under", need.under},
          {"time_s", need.time.value()},
          {"hides_B_per_s", need.hides.value()},
          {"host_B_per_s", need.host.value()},
          {"drives_B_per_s", need.drives.value()},
          {"exposed_s", need.exposed.value()}};
}

int print_offload(PlanCase const& test, bool as_json) {
  std::vector<OffloadNeed> const needs = explain_offload(test.model, test.plan, test.cluster);
  if (!as_json) {
    std::cout << offload_text(needs);
    return 0;
  }
  nlohmann::ordered_json json{{"format", "foreplan offload 1"}, {"needs", nlohmann::ordered_json::array()}};
  for (OffloadNeed const& need : needs)
    json["needs"].push_back(json_of(need));
  std::cout << json.dump(2) << '\n';
  return 0;
}

} // namespace

int run_explain(std::vector<std::string> const& arguments) {
  cxxopts::Options options("foreplan explain",
                           "What one op of a plan costs, and from which numbers; without --op: all ops.");
  add_plan_options(options);
  auto text = [] { return cxxopts::value<std::string>(); };
  // clang-format off
  options.add_options()
      ("op", "name of the op, as \"gate-up\"", text())
      ("stage", "of the pipeline", text()->default_value("0"))
      ("top", "without --op: how many ops to list, longest first", text()->default_value("30"))
      ("offload", "instead: which GB/s per device would hide parameters, gradients, states, checkpoints on the host")
      ("json", "print JSON");
  // clang-format on
  auto const parsed = parse(options, arguments);
  if (!parsed)
    return 0;
  PlanCase const test = plan_case_of(*parsed);
  if (parsed->count("offload") > 0)
    return print_offload(test, parsed->count("json") > 0);
  auto const& [model, plan, cluster] = test;
  Stage const stage(whole_number(*parsed, "stage", 0, plan.pp - 1));
  std::vector<OpExplanation> ops = explain_ops(model, plan, cluster, stage);
  bool const one = parsed->count("op") > 0;
  if (one)
    ops = named(ops, (*parsed)["op"].as<std::string>());
  else
    keep_longest(ops, static_cast<std::size_t>(whole_number(*parsed, "top", 1, 100'000)));
  if (parsed->count("json") > 0) {
    nlohmann::ordered_json json{{"format", "foreplan ops 1"}, {"ops", nlohmann::ordered_json::array()}};
    for (OpExplanation const& op : ops)
      json["ops"].push_back(json_of(op));
    std::cout << json.dump(2) << '\n';
  } else if (one) {
    for (std::size_t i = 0; i < ops.size(); ++i)
      std::cout << (i > 0 ? "\n" : "") << text_of(ops[i]);
  } else {
    std::cout << table_of(ops);
  }
  return 0;
}

} // namespace foreplan

#include "cli/show_schedule.hpp"

#include "cli/arguments.hpp"
#include "cli/plan_options.hpp"
#include "plan/plan_checker.hpp"
#include "plan/read_plan.hpp"
#include "program/step_passes/step_passes.hpp"
#include "report/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iostream>
#include <numeric>

namespace foreplan {

namespace {

constexpr std::size_t line_width = 120;

// A schedule does not depend on the model: the smallest that the plan can cut.
Model stand_in(Plan const& plan) {
  Model model;
  model.name = "any model";
  model.layers = plan.layout.empty() ? plan.pp * plan.chunks
                                     : std::accumulate(plan.layout.begin(), plan.layout.end(), 0);
  model.hidden = model.heads = model.kv_heads = model.ffn = model.vocabulary = plan.tp;
  model.head_size = 1;
  model.max_positions = plan.sequence_length;
  return model;
}

Plan plan_from(cxxopts::ParseResult const& parsed, std::string const& file) {
  if (!file.empty())
    return read_plan(file);
  Plan plan;
  plan.schedule = schedule_of(parsed);
  plan.pp = static_cast<int>(required_whole_number(parsed, "pp", 1, 1 << 12));
  bool const says_chunks = parsed.count("chunks") > 0;
  plan.chunks = says_chunks                 ? static_cast<int>(whole_number(parsed, "chunks", 1, 1 << 12))
                : has_chunks(plan.schedule) ? 2
                                            : 1;
  plan.micro_batch_group = static_cast<int>(whole_number(parsed, "micro-batch-group", 0, 1 << 20));
  plan.global_batch = required_whole_number(parsed, "micro-batches", 1, 1 << 20);
  plan.sequence_length = 1;
  plan.p2p = P2p::overlapped;
  return plan;
}

// "F3 " and "B3 == ": the first chunk's passes in capitals.
std::string cell(Plan const& plan, Work const& work, std::size_t width) {
  char const kind = letter(work.kind);
  std::string text = fmt::format("{}{}", work.chunk == Chunk(0) ? kind : static_cast<char>(std::tolower(kind)),
                                 work.micro_batch.value());
  text.resize(width, ' ');
  for (int unit = 1; unit < units_of(plan, work.kind); ++unit)
    text += std::string(width - 1, '=') + ' ';
  return text;
}

struct StageLine {
  std::string text; // one cell a unit
  std::int64_t busy = 0, end = 0, most_in_flight = 0;
};

StageLine line_of(Plan const& plan, std::vector<Work> const& order, std::vector<std::int64_t> const& starts,
                  std::size_t width) {
  StageLine line;
  std::int64_t in_flight = 0;
  SlotKind const last = splits_backward(plan.schedule) ? SlotKind::weight_gradient : SlotKind::backward;
  for (std::size_t i = 0; i < order.size(); ++i) {
    line.text.resize(static_cast<std::size_t>(starts[i]) * width, ' ');
    line.text += cell(plan, order[i], width);
    line.busy += units_of(plan, order[i].kind);
    line.end = starts[i] + units_of(plan, order[i].kind);
    in_flight += order[i].kind == SlotKind::forward ? 1 : order[i].kind == last ? -1 : 0;
    line.most_in_flight = std::max(line.most_in_flight, in_flight);
  }
  return line;
}

// All stages' lines, cut where they are longer than the screen is wide.
void draw(std::vector<StageLine> const& lines, std::size_t width) {
  std::size_t longest = 0;
  for (StageLine const& line : lines)
    longest = std::max(longest, line.text.size());
  std::size_t const units = std::max<std::size_t>(1, (line_width - 10) / width);
  for (std::size_t begin = 0; begin < longest; begin += units * width) {
    std::cout << fmt::format("unit {}\n", begin / width);
    for (std::size_t s = 0; s < lines.size(); ++s) {
      std::string const& text = lines[s].text;
      std::string part = begin < text.size() ? text.substr(begin, units * width) : "";
      part.erase(part.find_last_not_of(' ') + 1);
      std::cout << fmt::format("stage {:>3} {}\n", s, part);
    }
  }
}

void summarize(Plan const& plan, std::vector<StageLine> const& lines) {
  std::int64_t makespan = 0;
  for (StageLine const& line : lines)
    makespan = std::max(makespan, line.end);
  std::vector<std::vector<std::string>> rows{{"stage", "idle", "of the step", "in flight"}};
  for (std::size_t s = 0; s < lines.size(); ++s) {
    std::int64_t const idle = makespan - lines[s].busy;
    rows.push_back({fmt::format("{}", s), fmt::format("{}", idle),
                    fmt::format("{:.1f} %", 100.0 * static_cast<double>(idle) / static_cast<double>(makespan)),
                    fmt::format("{}", lines[s].most_in_flight)});
  }
  std::cout << '\n'
            << table(rows)
            << fmt::format(
                   "\n{} units a step, {} of them a stage's work. A unit is a chunk's F{}; transfers take none.\n"
                   "In flight: micro-batches of a chunk whose activations a stage holds at once, at the most.\n",
                   makespan, lines[0].busy, splits_backward(plan.schedule) ? ", its B and its W" : ", half its B");
  if (plan.chunks > 1)
    std::cout << "Capitals: the first chunk.\n";
}

} // namespace

int show_schedule(std::vector<std::string> const& arguments) {
  cxxopts::Options options("foreplan show schedule [PLAN FILE]");
  auto text = [] { return cxxopts::value<std::string>(); };
  options.add_options()("schedule", schedule_names, text()->default_value("1f1b"))("pp", "pipeline stages", text())(
      "chunks", "model chunks a stage", text())("micro-batches", "of a step", text())(
      "micro-batch-group", "interleaved: micro-batches that run one chunk in a row; 0: pp", text()->default_value("0"));
  bool const has_file = !arguments.empty() && !arguments[0].starts_with("--");
  auto const parsed = parse(options, {arguments.begin() + (has_file ? 1 : 0), arguments.end()});
  if (!parsed)
    return 0;
  Plan const plan = plan_from(*parsed, has_file ? arguments[0] : "");
  refuse_illegal(stand_in(plan), plan);
  std::vector<std::vector<Work>> const orders = schedule(plan);
  std::vector<std::vector<std::int64_t>> const starts = unit_starts(plan, orders);
  std::size_t const width = fmt::format("{}", plan.micro_batches() - 1).size() + 2;
  std::vector<StageLine> lines;
  for (std::size_t s = 0; s < orders.size(); ++s)
    lines.push_back(line_of(plan, orders[s], starts[s], width));
  std::cout << describe(plan) << fmt::format(", {} micro-batches\n\n", plan.micro_batches());
  draw(lines, width);
  summarize(plan, lines);
  return 0;
}

} // namespace foreplan

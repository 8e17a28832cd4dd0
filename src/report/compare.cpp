#include "report/compare.hpp"

#include "report/table.hpp"
#include "units/text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace foreplan {

namespace {

double tokens(Report const& report) {
  return static_cast<double>(report.plan.global_batch * report.plan.sequence_length);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string signed_text(Seconds seconds) {
  if (std::abs(seconds.value()) < 1e-9) // rounding
    return "0 s";
  return (seconds < Seconds(0) ? "-" : "+") + to_string(Seconds(std::abs(seconds.value())));
}

std::string signed_percent(double share) { return fmt::format("{:+.1f} %", 100 * share); }

// ---------------------------------------------------------------------------------------------------------------- reasons

// "tp 8 against 2" for the fields that differ.
class Differences {
public:
  template <class T>
  Differences& of(std::string_view field, T a, T b) {
    if (a != b)
      text_ += fmt::format("{}{} {} against {}", text_.empty() ? "" : ", ", field, b, a);
    return *this;
  }
  [[nodiscard]] std::string const& text() const { return text_; }

private:
  std::string text_;
};

std::string_view yes(bool value) { return value ? "on" : "off"; }

// Flops per token; of the step when both do the same.
std::string work_reason(Report const& a, Report const& b) {
  double const ratio = b.executed_flops.value() / tokens(b) / (a.executed_flops.value() / tokens(a));
  std::string text;
  if (std::abs(ratio - 1) > 0.005)
    text = fmt::format("{:.3g} times the flops: {}", ratio,
                       Differences()
                           .of("recompute", to_string(a.plan.recompute), to_string(b.plan.recompute))
                           .of("attention", to_string(a.plan.attention), to_string(b.plan.attention))
                           .text());
  std::string const shapes =
      Differences().of("tp", a.plan.tp, b.plan.tp).of("micro-batch", a.plan.micro_batch, b.plan.micro_batch).text();
  if (!shapes.empty())
    text += (text.empty() ? "kernels of other shapes: " : "; kernels of other shapes: ") + shapes;
  return text;
}

std::string memory_bound_reason(Report const& a, Report const& b) {
  return Differences()
      .of("recompute", to_string(a.plan.recompute), to_string(b.plan.recompute))
      .of("sequence parallelism", yes(a.plan.sequence_parallel), yes(b.plan.sequence_parallel))
      .of("tp", a.plan.tp, b.plan.tp)
      .of("attention", to_string(a.plan.attention), to_string(b.plan.attention))
      .of("zero", a.plan.zero_stage, b.plan.zero_stage)
      .text();
}

std::string tp_reason(Report const& a, Report const& b) {
  return Differences()
      .of("tp", a.plan.tp, b.plan.tp)
      .of("sequence parallelism", yes(a.plan.sequence_parallel), yes(b.plan.sequence_parallel))
      .of("micro-batches", a.plan.micro_batches(), b.plan.micro_batches())
      .of("recompute", to_string(a.plan.recompute), to_string(b.plan.recompute))
      .text();
}

std::string dp_reason(Report const& a, Report const& b) {
  return Differences()
      .of("dp", a.plan.dp, b.plan.dp)
      .of("cp", a.plan.cp, b.plan.cp)
      .of("zero", a.plan.zero_stage, b.plan.zero_stage)
      .of("parameters of a rank over tp * pp =", a.plan.tp * a.plan.pp, b.plan.tp * b.plan.pp)
      .text();
}

std::string pp_reason(Report const& a, Report const& b) {
  return Differences()
      .of("pp", a.plan.pp, b.plan.pp)
      .of("chunks", a.plan.chunks, b.plan.chunks)
      .of("micro-batches", a.plan.micro_batches(), b.plan.micro_batches())
      .text();
}

// What filling and draining the pipeline costs at the least, as a share of the work: (pp - 1) / (chunks * micro-batches).
double ideal_bubble(Plan const& plan) {
  return (plan.pp - 1.0) / (plan.chunks * static_cast<double>(plan.micro_batches()));
}

std::string bubble_reason(Report const& a, Report const& b) {
  double const of_a = ideal_bubble(a.plan), of_b = ideal_bubble(b.plan);
  std::string text = pp_reason(a, b);
  if (std::abs(of_a - of_b) > 0.0005)
    text += fmt::format(": filling the pipeline, (pp - 1) / (chunks * micro-batches), is {} of the work against {}",
                        percent(of_b), percent(of_a));
  double const uneven_a = imbalance(a).excess, uneven_b = imbalance(b).excess;
  if (std::abs(uneven_a - uneven_b) > 0.005)
    text += fmt::format("{}the slowest stage computes {} longer than the mean of the stages against {}",
                        text.empty() ? "" : "; ", percent(uneven_b), percent(uneven_a));
  return text;
}

} // namespace

Comparison compare(Report const& a, Report const& b) {
  Comparison result;
  result.same_work = a.devices == b.devices && tokens(a) == tokens(b);
  double const scale_a = result.same_work ? 1 : a.devices * 1e6 / tokens(a);
  double const scale_b = result.same_work ? 1 : b.devices * 1e6 / tokens(b);
  result.a = a.step * scale_a;
  result.b = b.step * scale_b;
  auto part = [&](std::string_view name, Seconds of_a, Seconds of_b, std::string reason) {
    result.parts.push_back({name, of_a * scale_a, of_b * scale_b, std::move(reason)});
  };
  Breakdown const &x = a.breakdown, &y = b.breakdown;
  part("matrix products", x.compute[0], y.compute[0], work_reason(a, b));
  part("attention", x.compute[1], y.compute[1], work_reason(a, b));
  part("memory-bound kernels", x.compute[2] + x.compute[3], y.compute[2] + y.compute[3], memory_bound_reason(a, b));
  part("exposed tp communication", x.exposed_tp, y.exposed_tp, tp_reason(a, b));
  if (a.plan.cp > 1 || b.plan.cp > 1)
    part("exposed cp communication", x.exposed_cp, y.exposed_cp, {});
  part("exposed dp communication", x.exposed_dp, y.exposed_dp, dp_reason(a, b));
  part("exposed pp transfers", x.exposed_pp, y.exposed_pp, pp_reason(a, b));
  part("exposed offload", x.exposed_offload, y.exposed_offload, {});
  part("host", x.host, y.host, {});
  part("bubble", x.bubble, y.bubble, bubble_reason(a, b));
  std::stable_sort(result.parts.begin(), result.parts.end(), [](PartDifference const& p, PartDifference const& q) {
    return std::abs(p.difference().value()) > std::abs(q.difference().value());
  });
  return result;
}

std::string main_differences(Comparison const& comparison) {
  std::string text;
  for (std::size_t i = 0; i < comparison.parts.size() && i < 3; ++i) {
    PartDifference const& part = comparison.parts[i];
    if (std::abs(part.difference().value()) < 0.001 * comparison.a.value())
      break;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", part.part, signed_text(part.difference()));
  }
  return text.empty() ? "no part differs by 0.1 % of the step" : text;
}

std::string to_text(Comparison const& comparison, Report const& a, Report const& b, std::string_view name_a,
                    std::string_view name_b) {
  double const ratio = comparison.b / comparison.a - 1;
  std::string text = wrapped("", fmt::format("{} is {} {} than {}: {} against {} {}. {}.", name_b,
                                             percent(std::abs(ratio)), ratio < 0 ? "faster" : "slower", name_a,
                                             to_string(comparison.b), to_string(comparison.a),
                                             comparison.same_work ? "a step" : "of a device for a million tokens",
                                             main_differences(comparison)));
  for (auto const& [name, report] : {std::pair{name_a, &a}, std::pair{name_b, &b}})
    text += wrapped(fmt::format("  {}  ", name),
                    fmt::format("{} on {} x {}: {}; MFU {}, memory {} ({})", report->model, report->devices,
                                report->hardware, describe(report->plan), percent(report->mfu),
                                to_string(report->peak_memory), to_string(report->fit)));
  std::vector<std::vector<std::string>> rows{
      {"part", std::string(name_a), std::string(name_b), "difference", fmt::format("of {}", name_a)}};
  for (PartDifference const& part : comparison.parts)
    rows.push_back({std::string(part.part), to_string(part.a), to_string(part.b), signed_text(part.difference()),
                    signed_percent(part.difference() / comparison.a)});
  rows.push_back({comparison.same_work ? "step" : "device time of a million tokens", to_string(comparison.a),
                  to_string(comparison.b), signed_text(comparison.b - comparison.a), signed_percent(ratio)});
  text += '\n' + table(rows);
  std::string reasons;
  for (PartDifference const& part : comparison.parts)
    if (!part.reason.empty() && std::abs(part.difference().value()) >= 0.001 * comparison.a.value())
      reasons += wrapped(fmt::format("  {}  ", part.part), part.reason);
  return reasons.empty()
             ? text
             : text + fmt::format("\nwhat differs in the plans ({} against {}):\n", name_b, name_a) + reasons;
}

nlohmann::ordered_json to_json(Comparison const& comparison) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (PartDifference const& part : comparison.parts)
    parts.push_back({{"part", part.part},
                     {"a_s", part.a.value()},
                     {"b_s", part.b.value()},
                     {"difference_s", part.difference().value()},
                     {"reason", part.reason}});
  return {{"unit", comparison.same_work ? "step" : "device time of a million tokens"},
          {"a_s", comparison.a.value()},
          {"b_s", comparison.b.value()},
          {"b_over_a", comparison.b / comparison.a},
          {"parts", parts}};
}

} // namespace foreplan

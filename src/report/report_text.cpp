#include "report/report.hpp"
#include "report/table.hpp"
#include "units/text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace foreplan {

std::string_view to_string(Fit fit) {
  switch (fit) {
    case Fit::fits: return "fits";
    case Fit::borderline: return "borderline";
    case Fit::too_large: return "too large";
  }
  return "?";
}

StageReport const& fullest_stage(Report const& report) {
  return *std::max_element(report.stages.begin(), report.stages.end(),
                           [](StageReport const& a, StageReport const& b) { return a.peak.total() < b.peak.total(); });
}

Imbalance imbalance(Report const& report) {
  Imbalance result;
  Seconds sum, most;
  for (StageReport const& stage : report.stages) {
    Seconds const compute = stage.breakdown.compute_total();
    sum += compute;
    if (compute > most) {
      most = compute;
      result.slowest = stage.stage;
    }
  }
  if (most > Seconds(0))
    result.excess = most * static_cast<double>(report.stages.size()) / sum - 1;
  return result;
}

namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

// " (+- 6 %)"
std::string band_text(Report const& report) {
  return report.band > 0 ? fmt::format(" (+- {:.0f} %)", 100 * report.band) : "";
}

// "fits (99 %)"
std::string verdict(Report const& report) {
  return fmt::format("{} ({:.0f} %)", to_string(report.fit), std::clamp(100 * report.fit_probability, 1.0, 99.0));
}

std::string sentence(Report const& report) {
  std::string text = wrapped(
      "", fmt::format("{} on {} x {}: {} a step{}, {:.0f} tokens/s per device, MFU {}, HFU {}. Memory {}.",
                      report.model, report.devices, report.hardware, to_string(report.step), band_text(report),
                      report.tokens_per_second / report.devices, percent(report.mfu), percent(report.hfu),
                      verdict(report)));
  text += wrapped("  plan  ",
                  fmt::format("{}; {} micro-batches of {} x {} tokens", describe(report.plan),
                              report.plan.micro_batches(), report.plan.micro_batch, report.plan.sequence_length));
  if (report.band > 0)
    text += wrapped(
        "  band  ",
        fmt::format("two thirds of steps lie within, if kernels and collectives deviate as measured ones do; "
                    "known for {} of the step, the rest taken alike",
                    percent(report.band_known)));
  text += wrapped("  MFU   ",
                  fmt::format("6 N + causal attention = {} a token, no recomputation, against the dense bf16 "
                              "peak of {}; HFU: all matrix products that run",
                              to_string(report.flops_per_token), to_string(report.peak)));
  return text + fmt::format("  by    {}, {} items\n", report.engine, report.items);
}

std::string breakdown_table(Report const& report) {
  Breakdown const& b = report.breakdown;
  std::vector<std::vector<std::string>> rows{
      {"where the step goes (mean over ranks)", "time", "share", "under compute"}};
  auto row = [&](std::string name, Seconds seconds, std::string hidden = "") {
    rows.push_back({std::move(name), to_string(seconds), percent(seconds / report.step), std::move(hidden)});
  };
  row("compute: matrix products", b.compute[0]);
  row("compute: attention", b.compute[1]);
  row("compute: memory-bound kernels", b.compute[2]);
  row("exposed tp communication", b.exposed_tp, "+ " + to_string(b.hidden_tp));
  if (report.plan.cp > 1)
    row("exposed cp communication", b.exposed_cp, "+ " + to_string(b.hidden_cp));
  row("exposed dp communication", b.exposed_dp, "+ " + to_string(b.hidden_dp));
  row("exposed pp transfers", b.exposed_pp, "+ " + to_string(b.hidden_pp));
  if (report.plan.offload.optimizer != MemoryTier::device || report.plan.offload.checkpoints)
    row("exposed offload (host and copies)", b.exposed_offload, "+ " + to_string(b.hidden_offload));
  row("host-bound", b.host);
  row("bubble (waiting for other ranks)", b.bubble);
  rows.push_back({"step", to_string(report.step), percent(b.total() / report.step)});
  std::string text = table(rows);
  if (Imbalance const uneven = imbalance(report); uneven.excess > 0.01)
    text += fmt::format("  Stage {} computes {} longer than the mean of the stages; the others wait for it.\n",
                        uneven.slowest.value(), percent(uneven.excess));
  double const step = report.step.value();
  text += wrapped(
      "  ", fmt::format("A profiler counts waiting in a collective as communication: compute {}, non-compute {}, idle "
                        "{}; {} of communication overlapped.",
                        percent(b.compute_total().value() / step), percent(b.non_compute().value() / step),
                        percent(std::max(0.0, 1 - (b.compute_total() + b.non_compute()).value() / step)),
                        percent(overlap(b))));
  return text;
}

std::string path_text(Report const& report) {
  CriticalPath const& path = report.critical_path;
  if (path.legs.empty())
    return {};
  std::string kinds;
  for (std::size_t k = 0; k < path_kinds; ++k)
    if (path.by_kind[k] > report.step * 0.0005)
      kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", to_string(static_cast<PathKind>(k)),
                           percent(path.by_kind[k] / report.step));
  return wrapped("critical path: ", in_words(path)) + wrapped("  spent on ", kinds + ".");
}

std::string gigabytes(std::int64_t bytes) {
  double const value = static_cast<double>(bytes) / 1e9;
  return bytes == 0 ? "-" : fmt::format("{:.{}f}", value, value < 10 ? 2 : 1);
}

struct MemoryColumn {
  char const* name;
  std::vector<Category> categories;
};

// The categories that any stage has.
std::vector<MemoryColumn> memory_columns(Report const& report) {
  std::vector<MemoryColumn> columns{
      {"params", {Category::parameters}},   {"grads", {Category::gradients}},
      {"optimizer", {Category::optimizer}}, {"activations", {Category::activations, Category::scratch}},
      {"logits", {Category::logits}},       {"transfers", {Category::communication}}};
  std::erase_if(columns, [&](MemoryColumn const& column) {
    return std::all_of(report.stages.begin(), report.stages.end(), [&](StageReport const& stage) {
      return std::all_of(column.categories.begin(), column.categories.end(), [&](Category category) {
        return stage.peak.by_category[static_cast<std::size_t>(category)] == 0;
      });
    });
  });
  return columns;
}

} // namespace

std::string memory_table(Report const& report) {
  std::vector<MemoryColumn> const columns = memory_columns(report);
  std::vector<std::vector<std::string>> rows{{"memory at the stage's peak, GB"}};
  for (MemoryColumn const& column : columns)
    rows[0].push_back(column.name);
  rows[0].insert(rows[0].end(), {"total", "of usable"});
  std::size_t const stage_count = report.stages.size();
  for (std::size_t s = 0; s < stage_count; ++s) {
    if (stage_count > 6 && s >= 3 && s + 2 < stage_count) { // the middle stages are alike
      if (s == 3)
        rows.push_back({"..."});
      continue;
    }
    StageReport const& stage = report.stages[s];
    rows.push_back({fmt::format("stage {}: {}", stage.stage.value(), stage.layers)});
    for (MemoryColumn const& column : columns) {
      std::int64_t bytes = 0;
      for (Category category : column.categories)
        bytes += stage.peak.by_category[static_cast<std::size_t>(category)];
      rows.back().push_back(gigabytes(bytes));
    }
    rows.back().push_back(gigabytes(stage.peak.total()));
    rows.back().push_back(percent(static_cast<double>(stage.peak.total()) / report.usable_memory.value()));
  }
  return table(rows);
}

namespace {

// " (of 256 GB)", or that it is too much.
std::string of_share(Bytes need, Bytes share) {
  if (share == Bytes(0))
    return {};
  return need > share ? fmt::format(": more than its share, {}", to_string(share))
                      : fmt::format(" (of {})", to_string(share));
}

} // namespace

std::string memory_sentence(Report const& report) {
  StageReport const& fullest = fullest_stage(report);
  double const free = 1 - report.peak_memory / report.usable_memory;
  std::string text = fmt::format("Memory {}: {} of {} usable on stage {}, at {}; ", verdict(report),
                                 to_string(report.peak_memory), to_string(report.usable_memory), fullest.stage.value(),
                                 fullest.peak_moment);
  text += free < 0 ? fmt::format("{} too much", to_string(report.peak_memory - report.usable_memory))
                   : fmt::format("{} stay free", percent(free));
  if (report.fit == Fit::borderline)
    text += fmt::format(", less than the {} headroom asked for", percent(report.headroom));
  text += fmt::format(". The allocator needs about {}", to_string(report.needed_memory));
  if (report.host_memory > Bytes(0))
    text += fmt::format(". A rank pins {} of its host's memory{}", to_string(report.host_memory),
                        of_share(report.host_memory, report.host_share));
  if (report.disk_memory > Bytes(0))
    text += fmt::format(" and keeps {} on drives{}", to_string(report.disk_memory),
                        of_share(report.disk_memory, report.disk_share));
  text += fmt::format(". {} more are reserved for context and libraries. Not modelled: {}.",
                      to_string(report.reserved_memory), memory_not_modelled);
  return wrapped("", text);
}

std::string to_text(Report const& report) {
  return sentence(report) + '\n' + breakdown_table(report) + '\n' + path_text(report) + '\n' + memory_table(report) +
         '\n' + memory_sentence(report) + report.risk;
}

} // namespace foreplan

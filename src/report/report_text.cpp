#include "report/report.hpp"
#include "report/table.hpp"
#include "units/text.hpp"

#include <fmt/format.h>

namespace foreplan {

std::string_view to_string(Fit fit) {
  switch (fit) {
    case Fit::fits: return "fits";
    case Fit::borderline: return "borderline";
    case Fit::too_large: return "too large";
  }
  return "?";
}

namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string breakdown_table(Report const& report) {
  Breakdown const& b = report.breakdown;
  std::vector<std::vector<std::string>> rows{{"where the step goes (mean over ranks)", "time", "share"}};
  auto row = [&](std::string name, Seconds seconds, std::string remark = "") {
    rows.push_back({std::move(name), to_string(seconds), percent(seconds / report.step), std::move(remark)});
  };
  row("compute: matrix products", b.compute[0]);
  row("compute: attention", b.compute[1]);
  row("compute: memory-bound kernels", b.compute[2]);
  auto hidden = [](Seconds seconds) { return "+ " + to_string(seconds) + " hidden under compute"; };
  row("exposed tp communication", b.exposed_tp, hidden(b.hidden_tp));
  row("exposed dp communication", b.exposed_dp, hidden(b.hidden_dp));
  row("exposed pp transfers", b.exposed_pp, hidden(b.hidden_pp));
  row("host-bound", b.host);
  row("bubble (waiting for other ranks)", b.bubble);
  rows.push_back({"step", to_string(report.step), percent(b.total() / report.step)});
  return table(rows);
}

std::string gigabytes(std::int64_t bytes) { return to_string(Bytes(static_cast<double>(bytes))); }

std::string memory_table(Report const& report) {
  std::vector<std::vector<std::string>> rows{
      {"memory at the peak", "parameters", "gradients", "optimizer", "activations", "logits", "communication", "total", "of usable"}};
  std::size_t const stage_count = report.stages.size();
  for (std::size_t s = 0; s < stage_count; ++s) {
    if (stage_count > 8 && s >= 3 && s + 2 < stage_count) { // the middle stages are alike
      if (s == 3)
        rows.push_back({"..."});
      continue;
    }
    StageReport const& stage = report.stages[s];
    auto of = [&](Category category) { return stage.peak.by_category[static_cast<std::size_t>(category)]; };
    rows.push_back({fmt::format("stage {}: {}", stage.stage.value(), stage.layers), gigabytes(of(Category::parameters)),
                    gigabytes(of(Category::gradients)), gigabytes(of(Category::optimizer)),
                    gigabytes(of(Category::activations) + of(Category::scratch)), gigabytes(of(Category::logits)),
                    gigabytes(of(Category::communication)), gigabytes(stage.peak.total()),
                    percent(static_cast<double>(stage.peak.total()) / report.usable_memory.value())});
  }
  return table(rows);
}

std::string fit_sentence(Report const& report) {
  StageReport const* fullest = &report.stages.front();
  for (StageReport const& stage : report.stages)
    if (stage.peak.total() > fullest->peak.total())
      fullest = &stage;
  std::string text = fmt::format("Memory {}: {} of {} usable on stage {}, at {}.", to_string(report.fit),
                                 to_string(report.peak_memory), to_string(report.usable_memory),
                                 fullest->stage.value(), fullest->peak_moment);
  if (report.fit == Fit::borderline)
    text += fmt::format(" It leaves less than the {} headroom asked for.", percent(report.headroom));
  return text + " Not modelled: fragmentation.\n";
}

} // namespace

std::string to_text(Report const& report) {
  std::string text = fmt::format(
      "{} on {} x {} takes {} a step with {}: {:.0f} tokens/s per device, MFU {}.\n", report.model, report.devices,
      report.hardware, to_string(report.step), describe(report.plan), report.tokens_per_second / report.devices,
      percent(report.mfu));
  text += fmt::format("  MFU counts 6 N + causal attention = {} a token, no recomputation, against the dense bf16 peak.\n",
                      to_string(report.flops_per_token));
  text += fmt::format("  {}, {} items; {} micro-batches of {} x {} tokens.\n\n", report.engine, report.items,
                      report.plan.micro_batches(), report.plan.micro_batch, report.plan.sequence_length);
  text += breakdown_table(report) + '\n' + memory_table(report) + '\n' + fit_sentence(report);
  return text;
}

} // namespace foreplan

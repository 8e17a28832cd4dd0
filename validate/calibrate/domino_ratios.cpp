#include "validate/calibrate/domino_ratios.hpp"

#include "cluster/read_profile.hpp"
#include "plan/framework.hpp"
#include "plan/plan_checker.hpp"
#include "planner/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace foreplan {

namespace {

// The source states neither micro-batch nor, for GPT, vocabulary. The script whose log stands in its README does
// (DeepSpeedExamples, training/DeepSpeed-Domino, pretrain_gpt3_13b.sh): 16 sequences of 1024 tokens on 8 devices,
// gpt2-vocab.json.
constexpr std::int64_t tokens_per_device = 2048;
constexpr std::int64_t gpt2_vocabulary = 50257;
// Rows of shares that state no sequence length: the script's.
constexpr std::int64_t sequence_length = 1024;

std::int64_t whole(CsvRow const& row, std::string_view column) {
  return static_cast<std::int64_t>(std::llround(row.required(column)));
}

Model model_of(CsvRow const& row, std::int64_t tokens) {
  Model model;
  model.name = row.text("model");
  model.layers = static_cast<int>(whole(row, "layers"));
  model.hidden = whole(row, "hidden");
  model.heads = whole(row, "heads");
  model.kv_heads = whole(row, "kv_heads");
  model.head_size = model.hidden / model.heads;
  model.ffn = whole(row, "ffn");
  model.vocabulary = static_cast<std::int64_t>(row.number("vocab").value_or(gpt2_vocabulary));
  if (model.name.starts_with("gpt")) {
    model.norm = NormKind::layer_norm;
    model.activation = Activation::gelu;
    model.positions = Positions::learned;
    model.max_positions = tokens;
    model.biases = true;
    model.tied_embeddings = true;
    model.dropout = true;
  }
  return model;
}

Report run_megatron(Model const& model, Plan const& plan, Cluster const& cluster) {
  return simulate(model, as_run_by(read_framework(FOREPLAN_FRAMEWORKS "/megatron-lm-2024.json"), plan), cluster, {});
}

// The charts are of November 2024, as is the code first released (DeepSpeed 0.16.0, runtime/domino/transformer.py),
// whose layers wait for their own reductions: of the forms here the intra-layer one is nearest. The inter-layer path
// came later.
Report run_domino(Model const& model, Plan const& plan, Cluster const& cluster) {
  Plan run = as_run_by(read_framework(FOREPLAN_FRAMEWORKS "/deepspeed-domino.json"), plan);
  run.domino_slices = 2;
  run.domino = Domino::intra_layer;
  return simulate(model, run, cluster, {});
}

double without_exposed_tp(Report const& report) { return (report.step - report.breakdown.exposed_tp) / report.step; }

} // namespace

bool is_of_domino(CsvRow const& row) { return row.text("source") == "deepspeed-domino"; }

std::optional<JudgedRatio> judged_domino_ratio(CsvRow const& row, std::string& why_not) {
  std::string const& relative_to = row.text("rel_to");
  bool const is_gain = relative_to.starts_with("Megatron-LM same config");
  bool const is_share = relative_to.starts_with("fraction of iteration time");
  bool const is_of_optimum = relative_to.starts_with("optimal throughput");
  if (!row.number("layers") || !row.number("tp") || !(is_gain || is_share || is_of_optimum)) {
    why_not = "model or plan not stated";
    return std::nullopt;
  }
  HardwareProfile const profile = read_profile(FOREPLAN_HARDWARE "/dgx-h100.json");
  Framework const framework = read_framework(FOREPLAN_FRAMEWORKS "/megatron-lm-2024.json");
  Plan plan;
  plan.tp = static_cast<int>(whole(row, "tp"));
  plan.sequence_length = static_cast<std::int64_t>(row.number("seq_len").value_or(sequence_length));
  plan.micro_batch = plan.global_batch = tokens_per_device * plan.tp / plan.sequence_length;
  plan.parameter_dtype = DType::fp16;
  Model model = model_of(row, plan.sequence_length);
  model.vocabulary = padded_vocabulary(framework, model.vocabulary, plan.tp);
  if (auto const findings = check(model, plan); !findings.empty()) {
    why_not = "plan checker: " + findings[0].rule;
    return std::nullopt;
  }
  Cluster const cluster{profile, (plan.tp + profile.node.devices - 1) / profile.node.devices, {}};
  bool const domino = row.text("framework").find("Domino") != std::string::npos;
  Report const report = domino ? run_domino(model, plan, cluster) : run_megatron(model, plan, cluster);
  double predicted = without_exposed_tp(report);
  std::string what = "of that without tp communication";
  if (is_gain) {
    predicted = run_megatron(model, plan, cluster).step / report.step;
    what = "over Megatron-LM";
  } else if (is_share) {
    predicted = 1 - predicted;
    what = "share of tp communication";
  }
  return JudgedRatio{row.text("source_id"),
                     fmt::format("{}, tp {}, {} tokens, {}{}", model.name, plan.tp, plan.sequence_length,
                                 domino ? "Domino " : "Megatron-LM ", what),
                     row.required("rel_value"), predicted};
}

std::vector<JudgedRatio> hidden_shares(std::vector<JudgedRatio> const& rows) {
  constexpr std::string_view domino = "_domino";
  auto const hidden = [](double d, double m) { return 1 - (1 / d - 1) / (1 / m - 1); };
  std::vector<JudgedRatio> shares;
  for (JudgedRatio const& row : rows) {
    if (!row.id.ends_with(domino))
      continue;
    std::string const run = row.id.substr(0, row.id.size() - domino.size());
    auto const other = std::find_if(rows.begin(), rows.end(),
                                    [&](JudgedRatio const& candidate) { return candidate.id == run + "_megatron"; });
    if (other != rows.end())
      shares.push_back({run + "_hidden", "share of tp communication that Domino hides",
                        hidden(row.measured, other->measured), hidden(row.predicted, other->predicted)});
  }
  return shares;
}

} // namespace foreplan

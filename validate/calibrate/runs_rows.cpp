#include "validate/calibrate/runs_rows.hpp"

#include "cluster/read_profile.hpp"
#include "plan/framework.hpp"
#include "plan/plan_checker.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

namespace foreplan {

namespace {

// Which profile a chip is looked up in. `node`: the row's node type contains it.
struct HardwareOfChip {
  std::string_view chip, node, hardware;
};
constexpr HardwareOfChip hardware_of_chips[] = {
    {"h100", "AWS P5", "aws-p5-h100"}, {"h100", "Grand Teton", "grand-teton-h100"},
    {"h100", "", "dgx-h100"},          {"h200", "", "hgx-h200"},
    {"a100-80", "", "dgx-a100"},       {"a100-40", "", "dgx-a100-40"},
    {"b200", "", "dgx-b200"},          {"b300", "", "dgx-b300"},
    {"gb200", "", "gb200-nvl72"},      {"gb300", "", "gb300-nvl72"},
    {"v100-32", "", "dgx-2"},          {"mi300x", "", "mi300x-8gpu"},
    {"mi325x", "", "mi325x-8gpu"},     {"mi355x", "", "mi355x-8gpu"},
};

// Which profile a trainer runs by. The first whose text the row's framework contains.
struct FrameworkOfTrainer {
  std::string_view trainer, framework;
};
constexpr FrameworkOfTrainer framework_of_trainers[] = {
    {"zero-bubble", "megatron-lm-2023"},
    {"ZeRO-3", "megatron-deepspeed"}, // Megatron-LM's model
    {"Primus", "megatron-core"},
    {"Megatron-DeepSpeed", "megatron-deepspeed"},
    {"Megatron-Core", "megatron-core"},
    {"NeMo AutoModel", "fsdp2"},
    {"NeMo", "megatron-core"},
    {"MLPerf", "megatron-core"},
    {"nanotron", "nanotron"},
    {"InternEvo", "internevo"},
    {"Composer", "composer-fsdp"},
    {"fms-fsdp", "fms-fsdp"},
    {"FSDP", "fsdp2"},
    {"DeepSpeed", "deepspeed"},
};

std::string framework_of(CsvRow const& row) {
  std::string const& trainer = row.text("framework");
  for (FrameworkOfTrainer const& known : framework_of_trainers)
    if (trainer.find(known.trainer) != std::string::npos)
      return std::string(known.framework);
  if (trainer.find("Megatron-LM") != std::string::npos) // by age
    return row.number("year").value_or(0) < 2023 ? "megatron-lm-2021" : "megatron-core";
  return "";
}

std::string hardware_of(CsvRow const& row) {
  for (HardwareOfChip const& known : hardware_of_chips)
    if (row.text("chip") == known.chip && row.text("node_type").find(known.node) != std::string::npos)
      return std::string(known.hardware);
  return "";
}

// Profiles that rows have named, each read once.
struct Profiles {
  std::map<std::string, Framework> frameworks;
  std::map<std::string, HardwareProfile> hardware;
};

Framework const& framework_named(Profiles& profiles, std::string const& name) {
  auto const [found, is_new] = profiles.frameworks.try_emplace(name);
  if (is_new)
    found->second = read_framework(FOREPLAN_FRAMEWORKS "/" + name + ".json");
  return found->second;
}

HardwareProfile const& hardware_named(Profiles& profiles, std::string const& name) {
  auto const [found, is_new] = profiles.hardware.try_emplace(name);
  if (is_new)
    found->second = read_profile(FOREPLAN_HARDWARE "/" + name + ".json");
  return found->second;
}

bool has(CsvRow const& row, std::string_view column, std::string_view part) {
  return row.text_or_empty(column).find(part) != std::string::npos;
}

double number_or(CsvRow const& row, std::string_view column, double otherwise) {
  return row.number(column).value_or(otherwise);
}

std::int64_t whole(CsvRow const& row, std::string_view column) {
  return static_cast<std::int64_t>(std::llround(row.required(column)));
}

// What the row needs that cannot be expressed; empty: nothing.
std::string unknown_strategy(CsvRow const& row) {
  if (row.text("arch") != "dense")
    return "mixture of experts";
  if (!row.text_or_empty("mla").empty())
    return "latent attention";
  if (number_or(row, "lora", 0) > 0)
    return "LoRA";
  std::string const& precision = row.text("precision");
  if (precision != "bf16" && precision != "fp16")
    return precision + " products";
  if (!row.text_or_empty("quant_comm").empty() && row.text_or_empty("quant_comm") != "none")
    return "quantized communication (ZeRO++)";
  if (std::string const offload = row.text_or_empty("offload"); !offload.empty() && offload != "none")
    return "offload";
  if (has(row, "arch_note", "window") || has(row, "arch_note", "chunks of"))
    return "windowed attention";
  if (has(row, "optimizer", "bf16"))
    return "optimizer states in bf16";
  return "";
}

Model model_of(CsvRow const& row, Framework const& framework, int tp) {
  bool const gated = number_or(row, "gated_mlp", 0) > 0;
  Model model;
  model.name = row.text("model");
  model.layers = static_cast<int>(whole(row, "layers"));
  model.hidden = whole(row, "hidden");
  model.heads = whole(row, "heads");
  model.kv_heads = whole(row, "kv_heads");
  model.head_size = whole(row, "head_dim");
  model.ffn = whole(row, "ffn");
  model.vocabulary = padded_vocabulary(framework, whole(row, "vocab"), tp);
  model.max_positions = whole(row, "seq_len");
  model.tied_embeddings = number_or(row, "tied_embeddings", 0) > 0;
  if (!gated) {
    model.norm = NormKind::layer_norm;
    model.activation = Activation::gelu;
    model.positions = has(row, "arch_note", "ALiBi") ? Positions::alibi : Positions::learned;
    model.biases = true;
    model.dropout = framework.dropout;
    model.tied_embeddings = model.tied_embeddings && !framework.untied_embeddings;
    model.embedding_norm = has(row, "arch_note", "embedding layer norm");
  }
  return model;
}

// Selective recomputation of torchtitan runs every second block, or every second product of all blocks, again
// (torchtitan/models/llama3/infra/parallelize.py: selective_ac_option "2" and "op"): both half of the products.
void choose_recomputation(CsvRow const& row, Plan& plan) {
  std::string const recompute = row.text_or_empty("recompute");
  plan.recompute = recompute == "full"        ? Recompute::full
                   : recompute == "selective" ? Recompute::selective
                                              : Recompute::none;
  if (plan.recompute != Recompute::selective || !has(row, "framework", "torchtitan"))
    return;
  plan.recompute = Recompute::full;
  plan.recompute_layers = std::max(1, static_cast<int>(whole(row, "layers")) / (2 * plan.pp * plan.chunks));
}

// ZeRO 2 of FSDP is its SHARD_GRAD_OP: parameters are shared out too, but stay gathered from forward to backward.
void share_out_states(CsvRow const& row, Framework const& framework, Plan& plan) {
  plan.zero_stage = static_cast<int>(number_or(row, "zero", 0));
  int const group = static_cast<int>(number_or(row, "zero_group", 0));
  plan.zero_group = group == plan.dp ? 0 : group;
  if (plan.zero_stage == 2 && framework.shards_by_unit) {
    plan.zero_stage = 3;
    plan.sharding.reshard = Reshard::after_backward;
  }
}

// As the zero-bubble paper names them: ZB-1p has at most p micro-batches in flight, ZB-2p 2 p (arXiv 2401.10241, table 4).
Schedule schedule_of(CsvRow const& row, Plan const& plan) {
  std::string const name = row.text_or_empty("schedule");
  return name == "zb_1p"   ? Schedule::zb_h1
         : name == "zb_2p" ? Schedule::zb_h2
         : plan.chunks > 1 ? Schedule::interleaved
                           : Schedule::one_f_one_b;
}

Plan plan_of(CsvRow const& row, Framework const& framework) {
  Plan plan;
  plan.tp = static_cast<int>(whole(row, "tp"));
  plan.pp = static_cast<int>(whole(row, "pp"));
  plan.dp = static_cast<int>(whole(row, "dp"));
  plan.chunks = static_cast<int>(number_or(row, "vpp", 1));
  plan.schedule = schedule_of(row, plan);
  plan.sequence_parallel = plan.tp > 1 && number_or(row, "tp_sequence_parallel", 0) > 0;
  plan.tp_overlap = plan.sequence_parallel && (has(row, "overlap", "tp_comm") || has(row, "overlap", "async_tp"));
  plan.cp = static_cast<int>(number_or(row, "cp", 1));
  plan.cp_type = framework.cp_type;
  share_out_states(row, framework, plan);
  choose_recomputation(row, plan);
  plan.sequence_length = whole(row, "seq_len");
  plan.micro_batch = whole(row, "micro_batch");
  plan.global_batch = whole(row, "global_batch");
  plan.parameter_dtype = row.text("precision") == "fp16" ? DType::fp16 : DType::bf16;
  plan = as_run_by(framework, plan);
  if (std::string const reduce = row.text_or_empty("reduce_dtype"); !reduce.empty())
    plan.reduction_dtype = reduce == "fp32" ? DType::fp32 : plan.parameter_dtype;
  if (has(row, "extras", "compile")) // functions of a pass each become one kernel
    plan.execution.eager_activations = plan.execution.eager_norms = plan.execution.eager_rotary =
        plan.execution.eager_layout = plan.execution.eager_loss = false;
  return plan;
}

// The profile's node with as many devices as the row's, and its network.
Cluster cluster_of(CsvRow const& row, HardwareProfile const& hardware) {
  Cluster cluster{hardware, 1, {}};
  Node& node = cluster.profile.node;
  int const devices = static_cast<int>(whole(row, "gpus_per_node"));
  if (devices != node.devices) {
    node.nics = std::max(1, node.nics * devices / node.devices);
    node.devices = devices;
  }
  if (double const rate = number_or(row, "internode_GBps_per_gpu", 0); rate > 0)
    node.nic = BytesPerSecond(rate * 1e9 * node.devices / node.nics);
  int const gpus = static_cast<int>(whole(row, "gpus"));
  cluster.nodes = (gpus + node.devices - 1) / node.devices;
  return cluster;
}

std::string strategy_of(Plan const& plan) {
  std::string text;
  auto add = [&](bool used, std::string_view name) {
    if (used)
      text += (text.empty() ? "" : "+") + std::string(name);
  };
  add(plan.tp > 1, "tp");
  add(plan.pp > 1, splits_backward(plan.schedule) ? "pp zero-bubble" : plan.chunks > 1 ? "pp interleaved" : "pp");
  add(plan.cp > 1, "cp");
  add(plan.dp > 1, plan.zero_stage > 0 ? fmt::format("zero {}", plan.zero_stage) : "dp");
  add(plan.zero_group > 0, "replicas");
  if (text.empty())
    text = "one device";
  if (plan.recompute != Recompute::none)
    text += fmt::format(", {} recompute", to_string(plan.recompute));
  return text;
}

// Fills in the run, or says why it cannot be expressed.
std::string express(CsvRow const& row, Profiles& profiles, PublishedRun& run) {
  if (std::string const unknown = unknown_strategy(row); !unknown.empty())
    return unknown;
  run.hardware = hardware_of(row);
  if (run.hardware.empty())
    return "no hardware profile of chip " + run.chip;
  run.framework = framework_of(row);
  if (run.framework.empty())
    return "no framework profile of " + row.text("framework");
  Framework const& framework = framework_named(profiles, run.framework);
  run.plan = plan_of(row, framework);
  run.model = model_of(row, framework, run.plan.tp);
  run.cluster = cluster_of(row, hardware_named(profiles, run.hardware));
  run.strategy = strategy_of(run.plan);
  if (std::vector<PlanFinding> const findings = check(run.model, run.plan); !findings.empty())
    return "plan checker: " + findings[0].rule;
  return "";
}

constexpr double gib = 1024.0 * 1024 * 1024;

// Bytes of the column's unit. The column is GiB, but for rows whose trainer counts in 1e9: the zero-bubble fork prints
// max_memory_allocated() // 1000000 (megatron/core/pipeline_parallel/zerobubble/runtime.py).
double memory_unit(CsvRow const& row) { return has(row, "framework", "zero-bubble") ? 1e9 : gib; }

} // namespace

RunTable read_run_table(std::string const& path) {
  CsvTable const table = read_csv(path);
  RunTable result;
  Profiles profiles;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    CsvRow const row(table, i);
    PublishedRun run;
    run.id = row.text("run_id");
    run.config = row.text_or_empty("config_id");
    run.family = row.text_or_empty("family");
    run.source = row.text_or_empty("source");
    run.trust = row.text_or_empty("trust");
    run.chip = row.text("chip");
    run.trainer = row.text("framework");
    run.step = number_or(row, "step_s", 0);
    run.memory_note = row.text_or_empty("mem_note");
    run.peak_memory = number_or(row, "peak_mem_gib", 0) * memory_unit(row);
    run.memory_trust = row.text_or_empty("mem_trust");
    run.verdict = row.text_or_empty("verdict");
    run.estimated_need = number_or(row, "est_gib", 0) * gib;
    if (std::string const why = express(row, profiles, run); !why.empty())
      ++result.left_out[why];
    else
      result.runs.push_back(std::move(run));
  }
  return result;
}

std::string published_runs_path() { return FOREPLAN_PUBLISHED "/runs.csv"; }
std::string published_oom_path() { return FOREPLAN_PUBLISHED "/oom.csv"; }

} // namespace foreplan

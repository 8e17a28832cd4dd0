#include "cli/plan_options.hpp"

#include "cluster/read_profile.hpp"
#include "model/read_model.hpp"
#include "plan/framework.hpp"
#include "plan/plan_checker.hpp"
#include "plan/plan_fields.hpp"
#include "plan/read_plan.hpp"
#include "plan/words.hpp"
#include "planner/balance.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

namespace foreplan {

bool asks_for_balance(cxxopts::ParseResult const& parsed) {
  return parsed.count("layout") > 0 && parsed["layout"].as<std::string>() == "auto";
}

namespace {

constexpr char const* plan_options[] = {"tp",
                                        "pp",
                                        "dp",
                                        "chunks",
                                        "sequence-parallel",
                                        "zero",
                                        "schedule",
                                        "recompute",
                                        "seq-len",
                                        "micro-batch",
                                        "global-batch",
                                        "attention",
                                        "framework",
                                        "micro-batch-group",
                                        "layout",
                                        "cp",
                                        "cp-type",
                                        "domino-slices",
                                        "zero-group",
                                        "inner-group",
                                        "hpz",
                                        "qwz",
                                        "qgz",
                                        "tp-bits",
                                        "domino-columns",
                                        "domino",
                                        "tp-overlap",
                                        "offload-optimizer",
                                        "offload-ratio",
                                        "offload-tile",
                                        "offload-parameters",
                                        "offload-prefetch",
                                        "offload-sub-group",
                                        "offload-checkpoints",
                                        "loss-chunks"};

// "20"; "20*6": six parts of 20.
void add_parts(std::string const& entry, std::string const& text, std::vector<int>& layout) {
  char const* const end = entry.data() + entry.size();
  int blocks = -1, parts = 1;
  auto at = std::from_chars(entry.data(), end, blocks);
  if (at.ec == std::errc{} && at.ptr != end && *at.ptr == '*')
    at = std::from_chars(at.ptr + 1, end, parts);
  if (at.ec != std::errc{} || at.ptr != end || blocks < 0 || parts < 1 || parts > 1 << 16)
    throw InputError(fmt::format("--layout {}: must be auto, or numbers of blocks, as 3,4,4,3 or 19,20*6,21", text));
  layout.insert(layout.end(), static_cast<std::size_t>(parts), blocks);
}

std::vector<int> layout_of(cxxopts::ParseResult const& parsed) {
  std::vector<int> layout;
  if (parsed.count("layout") == 0 || asks_for_balance(parsed))
    return layout;
  std::string const text = parsed["layout"].as<std::string>();
  for (std::size_t at = 0, comma = 0; comma != std::string::npos; at = comma + 1) {
    comma = text.find(',', at);
    add_parts(text.substr(at, comma == std::string::npos ? comma : comma - at), text, layout);
  }
  return layout;
}

Offload offload_of(cxxopts::ParseResult const& parsed) {
  Offload offload;
  offload.optimizer = choice(parsed, "offload-optimizer", words<MemoryTier>);
  offload.ratio = parsed["offload-ratio"].as<std::string>() == "1" ? 1 : share(parsed, "offload-ratio");
  offload.tile = whole_number(parsed, "offload-tile", 0, most_elements);
  offload.parameters = choice(parsed, "offload-parameters", words<MemoryTier>);
  offload.prefetch = static_cast<int>(whole_number(parsed, "offload-prefetch", 0, 1 << 20));
  offload.sub_group = whole_number(parsed, "offload-sub-group", 0, most_elements);
  offload.checkpoints = parsed.count("offload-checkpoints") > 0;
  return offload;
}

Plan plan_from_options(cxxopts::ParseResult const& parsed) {
  Plan plan;
  plan.tp = static_cast<int>(whole_number(parsed, "tp", 1, 1 << 20));
  plan.pp = static_cast<int>(whole_number(parsed, "pp", 1, 1 << 20));
  plan.dp = static_cast<int>(whole_number(parsed, "dp", 1, 1 << 20));
  plan.cp = static_cast<int>(whole_number(parsed, "cp", 1, 1 << 20));
  plan.cp_type = choice(parsed, "cp-type", words<ContextParallel>);
  plan.domino_slices = static_cast<int>(whole_number(parsed, "domino-slices", 1, 1 << 20));
  plan.domino_columns = static_cast<int>(whole_number(parsed, "domino-columns", 1, 1 << 20));
  plan.domino = choice(parsed, "domino", words<Domino>);
  plan.tp_overlap = parsed.count("tp-overlap") > 0;
  plan.chunks = static_cast<int>(whole_number(parsed, "chunks", 1, 1 << 20));
  plan.sequence_parallel = parsed.count("sequence-parallel") > 0;
  plan.zero_stage = static_cast<int>(whole_number(parsed, "zero", 0, 3));
  plan.zero_group = static_cast<int>(whole_number(parsed, "zero-group", 0, 1 << 20));
  plan.sharding.inner_group = static_cast<int>(whole_number(parsed, "inner-group", 0, 1 << 20));
  plan.sharding.secondary_shard = parsed.count("hpz") > 0;
  plan.sharding.weight_bits = parsed.count("qwz") > 0 ? 8 : 0;
  plan.sharding.gradient_bits = parsed.count("qgz") > 0 ? 4 : 0;
  plan.tp_bits = static_cast<int>(whole_number(parsed, "tp-bits", 0, 8));
  plan.offload = offload_of(parsed);
  plan.loss_chunks = static_cast<int>(whole_number(parsed, "loss-chunks", 1, 1 << 20));
  plan.schedule = schedule_of(parsed);
  plan.layout = layout_of(parsed);
  if (plan.chunks > 1 && parsed.count("schedule") == 0)
    plan.schedule = Schedule::interleaved;
  if (is_v_shaped(plan.schedule) && parsed.count("chunks") == 0)
    plan.chunks = 2;
  if (has_chunks(plan.schedule) || splits_backward(plan.schedule))
    plan.p2p = P2p::overlapped;
  plan.micro_batch_group = static_cast<int>(whole_number(parsed, "micro-batch-group", 0, 1 << 20));
  plan.recompute = choice(parsed, "recompute", words<Recompute>);
  plan.attention = choice(parsed, "attention", words<Attention>);
  plan.sequence_length = required_whole_number(parsed, "seq-len", 1, 1 << 24);
  plan.micro_batch = whole_number(parsed, "micro-batch", 1, 1 << 20);
  plan.global_batch = required_whole_number(parsed, "global-batch", 1, 1 << 24);
  plan.bucket_elements = 100'000'000;
  if (parsed.count("framework") == 0)
    return plan;
  Framework const framework = framework_of(parsed);
  Plan run = as_run_by(framework, plan);
  if (parsed.count("cp-type") == 0)
    run.cp_type = framework.cp_type;
  if (parsed.count("attention") > 0)
    run.attention = plan.attention;
  return run;
}

} // namespace

Framework framework_of(cxxopts::ParseResult const& parsed) {
  std::string const text = parsed["framework"].as<std::string>();
  if (text.find('/') != std::string::npos || text.ends_with(".json"))
    return read_framework(text);
  std::vector<std::string> names;
  for (auto const& file : std::filesystem::directory_iterator(FOREPLAN_FRAMEWORKS))
    names.push_back(file.path().stem().string());
  if (std::ranges::find(names, text) != names.end())
    return read_framework(fmt::format("{}/{}.json", FOREPLAN_FRAMEWORKS, text));
  std::ranges::sort(names);
  throw InputError(fmt::format("--framework {}: must be a file, or one of {}", text, fmt::join(names, ", ")));
}

Schedule schedule_of(cxxopts::ParseResult const& parsed) { return choice(parsed, "schedule", words<Schedule>); }

void add_plan_options(cxxopts::Options& options) {
  auto text = [] { return cxxopts::value<std::string>(); };
  // clang-format off
  options.add_options()
      ("model", "model file (models/*.json)", text())
      ("hardware", "hardware profile (hardware_profiles/*.json)", text())
      ("nodes", "nodes of the cluster (default: as many as the plan needs)", text())
      ("plan", "plan file; or the options below", text())
      ("tp", "tensor parallel degree", text()->default_value("1"))
      ("pp", "pipeline stages", text()->default_value("1"))
      ("dp", "data parallel degree", text()->default_value("1"))
      ("cp", "context parallel degree: ranks that share out each sequence", text()->default_value("1"))
      ("cp-type", "all_gather, all_to_all or ring", text()->default_value("all_gather"))
      ("domino-slices", "row slices of a micro-batch that hide each other's tp communication", text()->default_value("1"))
      ("domino-columns", "column slices of a block's second products, reduced one under the next", text()->default_value("1"))
      ("domino", "how slices take turns: paper, inter_layer or intra_layer (the released code's)",
       text()->default_value("paper"))
      ("tp-overlap", "with sequence parallelism: products in chunks that overlap their gather or scatter (user buffers, async TP)")
      ("chunks", "model chunks a stage (interleaved schedule; V-shaped ones have 2)", text()->default_value("1"))
      ("micro-batch-group", "interleaved: micro-batches that run one chunk in a row; 0: pp", text()->default_value("0"))
      ("sequence-parallel", "shard tokens over tp outside its regions")
      ("loss-chunks", "pieces of a micro-batch whose logits live one after the other", text()->default_value("1"))
      ("zero-group", "data-parallel ranks that share out the states, the others hold copies (HSDP); 0: all",
       text()->default_value("0"))
      ("inner-group", "ZeRO++: data-parallel ranks near each other, as those of a node; 0: no such groups",
       text()->default_value("0"))
      ("hpz", "ZeRO++: the backward gathers parameters within the inner group, from shards that the forward keeps")
      ("qwz", "ZeRO++: parameters are gathered as codes of 8 bits")
      ("qgz", "ZeRO++: gradients are reduced as codes of 4 bits, within the inner groups and then across")
      ("tp-bits", "reductions over tp move codes of so many bits, 8 or 4; 0: not quantized", text()->default_value("0"))
      ("zero", "ZeRO stage: 0, 1 (optimizer states), 2 (and gradients), 3 (and parameters: FSDP)", text()->default_value("0"))
      ("offload-optimizer", "where the optimizer's states live: device, host or disk", text()->default_value("device"))
      ("offload-ratio", "the part of them that does (Twin-Flow); the device keeps the rest", text()->default_value("1"))
      ("offload-tile", "elements the host updates before they are copied up; 0: a bucket", text()->default_value("0"))
      ("offload-parameters", "where ZeRO-3's shards live: device, host or disk", text()->default_value("device"))
      ("offload-prefetch", "layers ahead whose shards or checkpoints are brought up", text()->default_value("1"))
      ("offload-sub-group", "elements of states read from disk at once; 0: a bucket", text()->default_value("0"))
      ("offload-checkpoints", "inputs of recomputed layers wait on the host")
      ("schedule", schedule_names, text()->default_value("1f1b"))
      ("layout", "blocks of each of the pp * chunks parts in the model's order, as 3,4,4,3 or 19,20*6,21 (default: even); auto: as "
       "makes the slowest stage fastest", text())
      ("recompute", "none, selective or full", text()->default_value("none"))
      ("attention", "fused or unfused", text()->default_value("fused"))
      ("framework", framework_help, text())
      ("seq-len", "tokens of a sequence", text())
      ("micro-batch", "sequences of a micro-batch", text()->default_value("1"))
      ("global-batch", "sequences of a step, over all devices", text());
  // clang-format on
}

Plan plan_of(cxxopts::ParseResult const& parsed) {
  if (parsed.count("plan") == 0)
    return plan_from_options(parsed);
  for (char const* option : plan_options)
    if (parsed.count(option) > 0)
      throw InputError(fmt::format("--{}: the plan file says it all; give --plan or single options, not both", option));
  return read_plan(parsed["plan"].as<std::string>());
}

Cluster cluster_of(cxxopts::ParseResult const& parsed, Plan const& plan) {
  Cluster cluster{read_profile(required_text(parsed, "hardware")), 1, {}};
  int const devices = cluster.profile.node.devices;
  int const needed = (plan.world_size() + devices - 1) / devices;
  cluster.nodes = parsed.count("nodes") > 0 ? static_cast<int>(whole_number(parsed, "nodes", 1, 100'000)) : needed;
  if (cluster.nodes < needed)
    throw InputError(
        fmt::format("--nodes {}: the plan has tp * cp * pp * dp = {} ranks and needs at least {} nodes of {} devices",
                    cluster.nodes, plan.world_size(), needed, devices));
  return cluster;
}

void add_allow_option(cxxopts::Options& options) {
  options.add_options()("allow",
                        "what not every machine or trainer has: offload (optimizer, parameters, checkpoints on host, "
                        "drives), zero-bubble "
                        "(schedules with a split backward)",
                        cxxopts::value<std::vector<std::string>>());
}

namespace {

bool allows(cxxopts::ParseResult const& parsed, std::string_view asked) {
  bool found = false;
  if (parsed.count("allow") == 0)
    return found;
  for (std::string const& what : parsed["allow"].as<std::vector<std::string>>()) {
    if (what != "offload" && what != "quantized" && what != "zero-bubble")
      throw InputError(fmt::format("--allow {}: must be offload, quantized or zero-bubble", what));
    found = found || what == asked;
  }
  return found;
}

} // namespace

bool allows_quantized(cxxopts::ParseResult const& parsed) { return allows(parsed, "quantized"); }

bool allows_split_schedules(cxxopts::ParseResult const& parsed) { return allows(parsed, "zero-bubble"); }

bool allows_offload(cxxopts::ParseResult const& parsed, HardwareProfile const& profile) {
  if (!allows(parsed, "offload"))
    return false;
  if (!profile.node.host)
    throw InputError(fmt::format("--allow offload: {} does not say what its hosts are like (node.host)", profile.name));
  return true;
}

void refuse_illegal(Model const& model, Plan const& plan) {
  std::vector<PlanFinding> const findings = check(model, plan);
  if (findings.empty())
    return;
  std::string text = fmt::format("plan for {}: {}", model.name, findings[0].text);
  if (findings.size() > 1)
    text += fmt::format(" ({} more rule{} broken)", findings.size() - 1, findings.size() == 2 ? " is" : "s are");
  throw InputError(text);
}

PlanCase plan_case_of(cxxopts::ParseResult const& parsed) {
  Model const model = read_model(required_text(parsed, "model"));
  Plan plan = plan_of(parsed);
  Cluster const cluster = cluster_of(parsed, plan);
  refuse_illegal(model, plan);
  if (asks_for_balance(parsed) && plan.pp > 1) {
    LowerBound times(model, cluster);
    plan.layout = balanced_layout(model, plan, times);
    refuse_illegal(model, plan);
  }
  return {model, plan, cluster};
}

} // namespace foreplan

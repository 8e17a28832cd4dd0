#include "plan/read_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

namespace foreplan {
namespace {

// Bounds that no plan reaches and within which products of two fields cannot overflow.
constexpr std::int64_t most_ranks = 1 << 24;
constexpr std::int64_t most_tokens = std::int64_t{1} << 31;
constexpr std::int64_t most_elements = std::int64_t{1} << 50;

void read_integer(JsonReader const& reader, std::string_view key, std::int64_t least, std::int64_t most,
                  std::int64_t& field) {
  if (auto const value = reader.find(key))
    field = value->integer(least, most);
}

void read_integer(JsonReader const& reader, std::string_view key, int least, std::int64_t most, int& field) {
  if (auto const value = reader.find(key))
    field = static_cast<int>(value->integer(least, most));
}

void read_dtype(JsonReader const& reader, std::string_view key, DType& field) {
  if (auto const value = reader.find(key))
    field = value->choice<DType>({{"bf16", DType::bf16}, {"fp16", DType::fp16}, {"fp32", DType::fp32}});
}

template <class T>
void read_choice(JsonReader const& reader, std::string_view key,
                 std::initializer_list<std::pair<std::string_view, T>> choices, T& field) {
  if (auto const value = reader.find(key))
    field = value->choice<T>(choices);
}

Execution read_execution(JsonReader const& reader) {
  reader.expect_keys({"issue", "fused_accumulation", "async_tensor_parallel", "layer_placement", "eager_activations",
                      "eager_layout", "eager_loss", "broadcast_parameters", "portable_attention"});
  Execution execution;
  auto read_switch = [&](std::string_view key, bool& field) {
    if (auto const value = reader.find(key))
      field = value->boolean();
  };
  if (auto const value = reader.find("issue"))
    execution.issue = value->quantity<Seconds>();
  read_switch("fused_accumulation", execution.fused_accumulation);
  read_switch("async_tensor_parallel", execution.async_tensor_parallel);
  read_switch("eager_activations", execution.eager_activations);
  read_switch("eager_layout", execution.eager_layout);
  read_switch("eager_loss", execution.eager_loss);
  read_switch("broadcast_parameters", execution.broadcast_parameters);
  read_switch("portable_attention", execution.portable_attention);
  read_choice<LayerPlacement>(reader, "layer_placement",
                              {{"even", LayerPlacement::even}, {"cost_share", LayerPlacement::cost_share}},
                              execution.layer_placement);
  return execution;
}

std::string execution_json(Execution const& e) {
  std::string text = fmt::format("{{\"issue\": \"{} us\"", e.issue.value() * 1e6);
  auto add = [&](std::string_view key, bool value) { text += fmt::format(", \"{}\": {}", key, value); };
  add("fused_accumulation", e.fused_accumulation);
  add("async_tensor_parallel", e.async_tensor_parallel);
  text += fmt::format(", \"layer_placement\": \"{}\"", to_string(e.layer_placement));
  add("eager_activations", e.eager_activations);
  add("eager_layout", e.eager_layout);
  add("eager_loss", e.eager_loss);
  add("broadcast_parameters", e.broadcast_parameters);
  add("portable_attention", e.portable_attention);
  return text + "}";
}

void read_sharding(JsonReader const& reader, Sharding& sharding) {
  read_choice<Reshard>(reader, "reshard",
                       {{"after_use", Reshard::after_use},
                        {"after_backward", Reshard::after_backward},
                        {"after_step", Reshard::after_step}},
                       sharding.reshard);
  if (auto const value = reader.find("reduce_once"))
    sharding.reduce_once = value->boolean();
  if (auto const value = reader.find("reduce_replicas_once"))
    sharding.reduce_replicas_once = value->boolean();
  read_integer(reader, "prefetch", 0, most_ranks, sharding.prefetch);
  read_integer(reader, "prefetch_elements", 0, most_elements, sharding.prefetch_elements);
  read_integer(reader, "reuse_distance", 0, most_elements, sharding.reuse_distance);
  read_integer(reader, "max_live_parameters", 0, most_elements, sharding.max_live);
  read_integer(reader, "persistence_threshold", 0, most_elements, sharding.persistence_threshold);
}

} // namespace

Plan read_plan(std::string const& path) { return read_plan(JsonReader::read_file(path, "foreplan plan 1")); }

Plan read_plan(JsonReader const& reader) {
  reader.expect_keys({"tp",
                      "pp",
                      "dp",
                      "cp",
                      "cp_type",
                      "domino_slices",
                      "chunks",
                      "micro_batch_group",
                      "layout",
                      "sequence_parallel",
                      "zero_stage",
                      "offload_optimizer",
                      "offload_ratio",
                      "offload_tile",
                      "zero_group",
                      "reshard",
                      "reduce_once",
                      "reduce_replicas_once",
                      "prefetch",
                      "prefetch_elements",
                      "reuse_distance",
                      "max_live_parameters",
                      "persistence_threshold",
                      "schedule",
                      "recompute",
                      "recompute_layers",
                      "recompute_unused",
                      "sequence_length",
                      "micro_batch",
                      "global_batch",
                      "parameter_dtype",
                      "gradient_dtype",
                      "reduction_dtype",
                      "bucket_elements",
                      "gradient_clip",
                      "attention",
                      "p2p",
                      "execution"});
  Plan plan;
  read_integer(reader, "tp", 1, most_ranks, plan.tp);
  read_integer(reader, "pp", 1, most_ranks, plan.pp);
  read_integer(reader, "dp", 1, most_ranks, plan.dp);
  read_integer(reader, "cp", 1, most_ranks, plan.cp);
  read_choice<ContextParallel>(reader, "cp_type",
                               {{"all_gather", ContextParallel::all_gather},
                                {"all_to_all", ContextParallel::all_to_all},
                                {"ring", ContextParallel::ring}},
                               plan.cp_type);
  read_integer(reader, "domino_slices", 1, most_tokens, plan.domino_slices);
  read_integer(reader, "chunks", 1, most_ranks, plan.chunks);
  if (auto const value = reader.find("sequence_parallel"))
    plan.sequence_parallel = value->boolean();
  read_integer(reader, "zero_stage", 0, 3, plan.zero_stage);
  if (auto const value = reader.find("offload_optimizer"))
    plan.offload_optimizer = value->boolean();
  if (auto const value = reader.find("offload_ratio"))
    plan.offload_ratio = value->number(0, 1);
  read_integer(reader, "offload_tile", 0, most_elements, plan.offload_tile);
  read_integer(reader, "zero_group", 0, most_ranks, plan.zero_group);
  read_sharding(reader, plan.sharding);
  read_integer(reader, "micro_batch_group", 0, most_ranks, plan.micro_batch_group);
  if (auto const value = reader.find("layout"))
    for (JsonReader const& part : value->elements())
      plan.layout.push_back(static_cast<int>(part.integer(0, most_ranks)));
  read_choice<Schedule>(reader, "schedule",
                        {{"gpipe", Schedule::gpipe},
                         {"1f1b", Schedule::one_f_one_b},
                         {"interleaved", Schedule::interleaved},
                         {"zb-h1", Schedule::zb_h1},
                         {"zb-h2", Schedule::zb_h2},
                         {"zb-v", Schedule::zb_v},
                         {"v-half", Schedule::v_half},
                         {"v-min", Schedule::v_min},
                         {"dualpipe-v", Schedule::dualpipe_v}},
                        plan.schedule);
  read_choice<Recompute>(reader, "recompute",
                         {{"none", Recompute::none}, {"selective", Recompute::selective}, {"full", Recompute::full}},
                         plan.recompute);
  read_integer(reader, "recompute_layers", -1, most_ranks, plan.recompute_layers);
  if (auto const value = reader.find("recompute_unused"))
    plan.recompute_unused = value->boolean();
  plan.sequence_length = reader["sequence_length"].integer(1, most_tokens);
  read_integer(reader, "micro_batch", 1, most_tokens, plan.micro_batch);
  plan.global_batch = reader["global_batch"].integer(1, most_tokens);
  read_dtype(reader, "parameter_dtype", plan.parameter_dtype);
  read_dtype(reader, "gradient_dtype", plan.gradient_dtype);
  read_dtype(reader, "reduction_dtype", plan.reduction_dtype);
  read_integer(reader, "bucket_elements", 0, most_elements, plan.bucket_elements);
  if (auto const value = reader.find("gradient_clip"))
    plan.gradient_clip = value->number(0, std::numeric_limits<double>::max());
  read_choice<Attention>(reader, "attention", {{"fused", Attention::fused}, {"unfused", Attention::unfused}},
                         plan.attention);
  read_choice<P2p>(reader, "p2p", {{"synchronous", P2p::synchronous}, {"overlapped", P2p::overlapped}}, plan.p2p);
  if (auto const value = reader.find("execution"))
    plan.execution = read_execution(*value);
  return plan;
}

std::string plan_json(Plan const& plan) {
  std::string text = "{\n  \"format\": \"foreplan plan 1\"";
  auto add = [&](std::string_view key, std::string const& value) {
    text += fmt::format(",\n  \"{}\": {}", key, value);
  };
  auto number = [&](std::string_view key, auto value) { add(key, fmt::format("{}", value)); };
  auto word = [&](std::string_view key, std::string_view value) { add(key, fmt::format("\"{}\"", value)); };
  number("tp", plan.tp);
  number("pp", plan.pp);
  number("dp", plan.dp);
  if (plan.cp > 1) {
    number("cp", plan.cp);
    word("cp_type", to_string(plan.cp_type));
  }
  if (plan.domino_slices > 1)
    number("domino_slices", plan.domino_slices);
  number("chunks", plan.chunks);
  if (plan.micro_batch_group > 0)
    number("micro_batch_group", plan.micro_batch_group);
  if (!plan.layout.empty())
    add("layout", fmt::format("[{}]", fmt::join(plan.layout, ", ")));
  number("sequence_parallel", plan.sequence_parallel);
  number("zero_stage", plan.zero_stage);
  if (plan.offload_optimizer) {
    add("offload_optimizer", "true");
    add("offload_ratio", fmt::format("{}", plan.offload_ratio));
    number("offload_tile", plan.offload_tile);
  }
  number("zero_group", plan.zero_group);
  word("reshard", to_string(plan.sharding.reshard));
  number("reduce_once", plan.sharding.reduce_once);
  number("reduce_replicas_once", plan.sharding.reduce_replicas_once);
  number("prefetch", plan.sharding.prefetch);
  number("prefetch_elements", plan.sharding.prefetch_elements);
  number("reuse_distance", plan.sharding.reuse_distance);
  number("max_live_parameters", plan.sharding.max_live);
  number("persistence_threshold", plan.sharding.persistence_threshold);
  word("schedule", to_string(plan.schedule));
  word("recompute", to_string(plan.recompute));
  number("recompute_layers", plan.recompute_layers);
  number("recompute_unused", plan.recompute_unused);
  number("sequence_length", plan.sequence_length);
  number("micro_batch", plan.micro_batch);
  number("global_batch", plan.global_batch);
  word("parameter_dtype", to_string(plan.parameter_dtype));
  word("gradient_dtype", to_string(plan.gradient_dtype));
  word("reduction_dtype", to_string(plan.reduction_dtype));
  number("bucket_elements", plan.bucket_elements);
  number("gradient_clip", plan.gradient_clip);
  word("attention", to_string(plan.attention));
  word("p2p", to_string(plan.p2p));
  if (plan.execution != Execution{})
    add("execution", execution_json(plan.execution));
  return text + "\n}\n";
}

} // namespace foreplan

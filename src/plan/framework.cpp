#include "plan/framework.hpp"

#include <functional>
#include <map>

namespace foreplan {

namespace {

void read_dtype(JsonReader const& value, DType& field) {
  field = value.choice<DType>({{"bf16", DType::bf16}, {"fp16", DType::fp16}, {"fp32", DType::fp32}});
}

// What reads the value of each key.
std::map<std::string_view, std::function<void(JsonReader const&)>> fields_of(Framework& f) {
  Execution& e = f.execution;
  auto flag = [](bool& field) { return [&field](JsonReader const& value) { field = value.boolean(); }; };
  auto dtype = [](DType& field) { return [&field](JsonReader const& value) { read_dtype(value, field); }; };
  return {
      {"issue", [&](JsonReader const& value) { e.issue = value.quantity<Seconds>(); }},
      {"attention",
       [&](JsonReader const& value) {
         f.attention = value.choice<Attention>({{"fused", Attention::fused}, {"unfused", Attention::unfused}});
       }},
      {"p2p",
       [&](JsonReader const& value) {
         f.p2p = value.choice<P2p>({{"synchronous", P2p::synchronous}, {"overlapped", P2p::overlapped}});
       }},
      {"layer_placement",
       [&](JsonReader const& value) {
         e.layer_placement = value.choice<LayerPlacement>(
             {{"even", LayerPlacement::even}, {"cost_share", LayerPlacement::cost_share}});
       }},
      {"bucket_elements",
       [&](JsonReader const& value) { f.bucket_elements = value.integer(0, std::int64_t{1} << 50); }},
      {"vocabulary_multiple", [&](JsonReader const& value) { f.vocabulary_multiple = value.integer(1, 1 << 20); }},
      {"recompute_unused", flag(f.recompute_unused)},
      {"dropout", flag(f.dropout)},
      {"eager_activations", flag(e.eager_activations)},
      {"eager_layout", flag(e.eager_layout)},
      {"eager_loss", flag(e.eager_loss)},
      {"broadcast_parameters", flag(e.broadcast_parameters)},
      {"portable_attention", flag(e.portable_attention)},
      {"fused_accumulation", flag(e.fused_accumulation)},
      {"async_tensor_parallel", flag(e.async_tensor_parallel)},
      {"gradient_dtype", dtype(f.gradient_dtype)},
      {"gradient_dtype_fp16", dtype(f.gradient_dtype_fp16)},
      {"reduction_dtype", dtype(f.reduction_dtype)},
      {"reduction_dtype_fp16", dtype(f.reduction_dtype_fp16)},
  };
}

} // namespace

Framework read_framework(std::string const& path) {
  return read_framework(JsonReader::read_file(path, "foreplan framework 1"));
}

Framework read_framework(JsonReader const& reader) {
  reader.expect_keys({"name",
                      "issue",
                      "attention",
                      "p2p",
                      "layer_placement",
                      "bucket_elements",
                      "recompute_unused",
                      "vocabulary_multiple",
                      "dropout",
                      "eager_activations",
                      "eager_layout",
                      "eager_loss",
                      "broadcast_parameters",
                      "portable_attention",
                      "fused_accumulation",
                      "async_tensor_parallel",
                      "gradient_dtype",
                      "gradient_dtype_fp16",
                      "reduction_dtype",
                      "reduction_dtype_fp16"});
  Framework framework;
  framework.name = reader["name"].text();
  for (auto const& [key, read] : fields_of(framework)) {
    auto const entry = reader.find(key);
    if (!entry)
      continue;
    entry->expect_keys({"value", "source"});
    read((*entry)["value"]);
    framework.sources.push_back({std::string(key), (*entry)["value"].as_it_stands(), (*entry)["source"].text()});
  }
  return framework;
}

std::int64_t padded_vocabulary(Framework const& framework, std::int64_t vocabulary, int tp) {
  std::int64_t const unit = framework.vocabulary_multiple * tp;
  return (vocabulary + unit - 1) / unit * unit;
}

Plan as_run_by(Framework const& framework, Plan plan) {
  bool const fp16 = plan.parameter_dtype == DType::fp16;
  plan.attention = framework.attention;
  plan.p2p = plan.schedule == Schedule::interleaved ? P2p::overlapped : framework.p2p;
  plan.recompute_unused = framework.recompute_unused;
  plan.bucket_elements = framework.bucket_elements;
  plan.gradient_dtype = fp16 ? framework.gradient_dtype_fp16 : framework.gradient_dtype;
  plan.reduction_dtype = fp16 ? framework.reduction_dtype_fp16 : framework.reduction_dtype;
  plan.execution = framework.execution;
  return plan;
}

} // namespace foreplan

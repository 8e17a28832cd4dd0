#include "plan/framework.hpp"

#include "plan/field_reader.hpp"
#include "plan/plan_fields.hpp"

namespace foreplan {

namespace {

// The fields of a framework profile: those of Execution and Sharding, and its own.
template <class F, class Visit>
void each_framework_field(F& framework, Visit&& visit) {
  each_execution_field(framework.execution, visit);
  each_sharding_field(framework.sharding, visit);
  visit("attention", framework.attention);
  visit("p2p", framework.p2p);
  visit("interleaved_p2p", framework.interleaved_p2p);
  visit("bucket_elements", framework.bucket_elements, 0, most_elements);
  visit("bucket_elements_zero", framework.bucket_elements_zero, 0, most_elements);
  visit("vocabulary_multiple", framework.vocabulary_multiple, 1, 1 << 20);
  visit("cp_type", framework.cp_type);
  visit("shards_by_unit", framework.shards_by_unit);
  visit("pipeline_reshard", framework.pipeline_reshard);
  visit("pipeline_reduce_once", framework.pipeline_reduce_once);
  visit("recompute_unused", framework.recompute_unused);
  visit("dropout", framework.dropout);
  visit("untied_embeddings", framework.untied_embeddings);
  visit("gradient_dtype", framework.gradient_dtype);
  visit("gradient_dtype_fp16", framework.gradient_dtype_fp16);
  visit("reduction_dtype", framework.reduction_dtype);
  visit("reduction_dtype_fp16", framework.reduction_dtype_fp16);
}

// Reads {"value": ..., "source": "..."} of the keys that are there.
struct SourcedReader {
  JsonReader const& reader;
  std::vector<FrameworkSource>& sources;
  template <class T, class... Bounds>
  void operator()(std::string_view key, T& field, Bounds... bounds) const {
    auto const entry = reader.find(key);
    if (!entry)
      return;
    entry->expect_keys({"value", "source"});
    FieldReader{*entry}("value", field, bounds...);
    sources.push_back({std::string(key), (*entry)["value"].as_it_stands(), (*entry)["source"].text()});
  }
};

} // namespace

Framework read_framework(std::string const& path) {
  return read_framework(JsonReader::read_file(path, "foreplan framework 1"));
}

Framework read_framework(JsonReader const& reader) {
  Framework framework;
  std::vector<std::string_view> keys{"name"};
  each_framework_field(framework, KeyLister{keys});
  reader.expect_keys(keys);
  framework.name = reader["name"].text();
  each_framework_field(framework, SourcedReader{reader, framework.sources});
  return framework;
}

std::int64_t padded_vocabulary(Framework const& framework, std::int64_t vocabulary, int tp) {
  std::int64_t const unit = framework.vocabulary_multiple * tp;
  return (vocabulary + unit - 1) / unit * unit;
}

namespace {

Sharding sharding_of(Framework const& framework, Plan const& plan) {
  Sharding sharding = framework.sharding;
  if (plan.pp > 1) {
    sharding.reshard = framework.pipeline_reshard;
    sharding.reduce_once = framework.pipeline_reduce_once;
  }
  Sharding const& asked = plan.sharding;
  if (asked.reshard != Sharding{}.reshard)
    sharding.reshard = asked.reshard;
  sharding.inner_group = asked.inner_group;
  sharding.secondary_shard = asked.secondary_shard;
  sharding.weight_bits = asked.weight_bits;
  sharding.gradient_bits = asked.gradient_bits;
  return sharding;
}

} // namespace

Plan as_run_by(Framework const& framework, Plan plan) {
  bool const fp16 = plan.parameter_dtype == DType::fp16;
  plan.attention = framework.attention;
  plan.p2p = splits_backward(plan.schedule)           ? P2p::overlapped
             : plan.schedule == Schedule::interleaved ? framework.interleaved_p2p
                                                      : framework.p2p;
  plan.recompute_unused = framework.recompute_unused;
  bool const apart = plan.zero_stage == 1 && framework.bucket_elements_zero >= 0;
  plan.bucket_elements = apart ? framework.bucket_elements_zero : framework.bucket_elements;
  plan.gradient_dtype = fp16 ? framework.gradient_dtype_fp16 : framework.gradient_dtype;
  plan.reduction_dtype = fp16 ? framework.reduction_dtype_fp16 : framework.reduction_dtype;
  plan.sharding = sharding_of(framework, plan);
  plan.execution = framework.execution;
  return plan;
}

} // namespace foreplan

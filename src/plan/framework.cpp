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
  visit("bucket_elements", framework.bucket_elements, 0, most_elements);
  visit("vocabulary_multiple", framework.vocabulary_multiple, 1, 1 << 20);
  visit("recompute_unused", framework.recompute_unused);
  visit("dropout", framework.dropout);
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

Plan as_run_by(Framework const& framework, Plan plan) {
  bool const fp16 = plan.parameter_dtype == DType::fp16;
  plan.attention = framework.attention;
  plan.p2p = has_chunks(plan.schedule) || splits_backward(plan.schedule) ? P2p::overlapped : framework.p2p;
  plan.recompute_unused = framework.recompute_unused;
  plan.bucket_elements = framework.bucket_elements;
  plan.gradient_dtype = fp16 ? framework.gradient_dtype_fp16 : framework.gradient_dtype;
  plan.reduction_dtype = fp16 ? framework.reduction_dtype_fp16 : framework.reduction_dtype;
  plan.sharding = framework.sharding;
  plan.execution = framework.execution;
  return plan;
}

} // namespace foreplan

#include "plan/read_plan.hpp"

#include "plan/field_reader.hpp"
#include "plan/plan_fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace foreplan {
namespace {

Execution read_execution(JsonReader const& reader) {
  Execution execution;
  std::vector<std::string_view> keys;
  each_execution_field(execution, KeyLister{keys});
  reader.expect_keys(keys);
  each_execution_field(execution, FieldReader{reader});
  return execution;
}

std::string json_of(bool value) { return value ? "true" : "false"; }
std::string json_of(double value) { return fmt::format("{}", value); }
std::string json_of(std::int64_t value) { return fmt::format("{}", value); }
std::string json_of(int value) { return fmt::format("{}", value); }
std::string json_of(std::vector<int> const& value) { return fmt::format("[{}]", fmt::join(value, ", ")); }
std::string json_of(Seconds value) { return fmt::format("\"{} us\"", value.value() * 1e6); }
template <class Word>
std::string json_of(Word value) {
  return fmt::format("\"{}\"", word_of(value));
}

// "key": value of every field.
struct FieldWriter {
  std::vector<std::pair<std::string_view, std::string>>& entries;
  template <class T, class... Bounds>
  void operator()(std::string_view key, T const& field, Bounds...) const {
    entries.emplace_back(key, json_of(field));
  }
};

std::string execution_json(Execution const& execution) {
  std::vector<std::pair<std::string_view, std::string>> entries;
  each_execution_field(execution, FieldWriter{entries});
  std::string text;
  for (auto const& [key, value] : entries)
    text += fmt::format("{}\"{}\": {}", text.empty() ? "{" : ", ", key, value);
  return text + "}";
}

// Programs find these in every plan, also where they are the default.
bool is_always_written(std::string_view key) {
  for (std::string_view known :
       {"tp", "pp", "dp", "cp", "chunks", "sequence_parallel", "zero_stage", "zero_group", "schedule", "recompute",
        "sequence_length", "micro_batch", "global_batch", "parameter_dtype", "gradient_dtype", "reduction_dtype",
        "bucket_elements", "attention", "p2p"})
    if (key == known)
      return true;
  return false;
}

} // namespace

Plan read_plan(std::string const& path) { return read_plan(JsonReader::read_file(path, "foreplan plan 1")); }

Plan read_plan(JsonReader const& reader) {
  Plan plan;
  std::vector<std::string_view> keys{"execution"};
  each_plan_field(plan, KeyLister{keys});
  reader.expect_keys(keys);
  for (std::string_view required : {"sequence_length", "global_batch"})
    static_cast<void>(reader[required]);
  each_plan_field(plan, FieldReader{reader});
  if (auto const value = reader.find("execution"))
    plan.execution = read_execution(*value);
  return plan;
}

std::string plan_json(Plan const& plan) {
  std::vector<std::pair<std::string_view, std::string>> entries, defaults;
  each_plan_field(plan, FieldWriter{entries});
  Plan const plain;
  each_plan_field(plain, FieldWriter{defaults});
  std::string text = "{\n  \"format\": \"foreplan plan 1\"";
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (is_always_written(entries[i].first) || entries[i] != defaults[i])
      text += fmt::format(",\n  \"{}\": {}", entries[i].first, entries[i].second);
  if (plan.execution != Execution{})
    text += fmt::format(",\n  \"execution\": {}", execution_json(plan.execution));
  return text + "\n}\n";
}

} // namespace foreplan

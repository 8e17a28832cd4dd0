// Framework profiles (framework_profiles/*.json): how an existing trainer runs a plan, as mechanisms with their sources.
// They are resolved into the plan's own fields; nothing downstream knows a framework's name.
#pragma once

#include "io/json_reader.hpp"
#include "plan/plan.hpp"

#include <string>
#include <vector>

namespace foreplan {

struct FrameworkSource {
  std::string key;   // "issue"
  std::string value; // as it stands in the file
  std::string source;
};

struct Framework {
  std::string name;
  Attention attention = Attention::fused;
  P2p p2p = P2p::synchronous; // of gpipe and 1f1b; all others overlap it
  bool recompute_unused = false;
  std::int64_t bucket_elements = 0;
  DType gradient_dtype = DType::fp32; // of 16-bit training in bf16
  DType gradient_dtype_fp16 = DType::fp32;
  DType reduction_dtype = DType::fp32;
  DType reduction_dtype_fp16 = DType::fp32;
  bool dropout = false;                 // of models with plain MLPs (GPT): the trainer's default
  std::int64_t vocabulary_multiple = 1; // the vocabulary is padded to a multiple of this times tp
  Sharding sharding;
  Execution execution;
  std::vector<FrameworkSource> sources;
};

// "format": "foreplan framework 1"; every value is {"value": ..., "source": "..."}. Throws InputError.
Framework read_framework(std::string const& path);
Framework read_framework(JsonReader const& reader);

std::int64_t padded_vocabulary(Framework const& framework, std::int64_t vocabulary, int tp);

// The plan as the framework runs it. The plan's parameter_dtype says whether it trains in fp16.
Plan as_run_by(Framework const& framework, Plan plan);

} // namespace foreplan

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
  P2p p2p = P2p::synchronous;            // of schedules with one chunk
  P2p interleaved_p2p = P2p::overlapped; // of those with more
  bool recompute_unused = false;
  std::int64_t bucket_elements = 0;
  std::int64_t bucket_elements_zero = -1; // of ZeRO 1; -1: as many
  DType gradient_dtype = DType::fp32;     // of 16-bit training in bf16
  DType gradient_dtype_fp16 = DType::fp32;
  DType reduction_dtype = DType::fp32;
  DType reduction_dtype_fp16 = DType::fp32;
  bool dropout = false;                                  // of models with plain MLPs (GPT): the trainer's default
  std::int64_t vocabulary_multiple = 1;                  // the vocabulary is padded to a multiple of this times tp
  ContextParallel cp_type = ContextParallel::all_gather; // where nobody chooses one: as_run_by() keeps the plan's
  bool shards_by_unit = false;    // FSDP: "ZeRO 2" keeps shards of parameters too, and gathers them once a micro-batch
  bool untied_embeddings = false; // the head has a matrix of its own, whatever the model says
  Sharding sharding;
  // Of plans with pp > 1.
  Reshard pipeline_reshard = Reshard::after_use;
  bool pipeline_reduce_once = false;
  Execution execution;
  std::vector<FrameworkSource> sources;
};

// "format": "foreplan framework 1"; every value is {"value": ..., "source": "..."}. Throws InputError.
Framework read_framework(std::string const& path);
Framework read_framework(JsonReader const& reader);

std::int64_t padded_vocabulary(Framework const& framework, std::int64_t vocabulary, int tp);

// The plan as the framework runs it. The plan's parameter_dtype says whether it trains in fp16. What a user decides stays:
// a reshard other than the default, and ZeRO++'s groups and bits.
Plan as_run_by(Framework const& framework, Plan plan);

} // namespace foreplan

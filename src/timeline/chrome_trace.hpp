// A trace as PyTorch's profiler writes it (Chrome trace format), so that Perfetto and HolisticTraceAnalysis open it like a
// real one: kernels by rank and stream, collectives with their arguments, launches on the host.
#pragma once

#include "plan/plan.hpp"
#include "units/ids.hpp"

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace foreplan {

struct TraceCollective {
  std::string name;  // torch.distributed's: "_allgather_base"
  std::string group; // "tp"
  std::vector<Rank> ranks;
  std::int64_t elements_in = 0;
  std::int64_t elements_out = 0;
  DType dtype = DType::bf16;
};

struct TraceKernel {
  std::string name;  // of a collective: NCCL's kernel
  std::string op;    // the op of the program: "qkv dX"
  std::string where; // "forward of micro-batch 3, layer 12", or empty
  int stream = 0;
  double start = 0; // seconds from the step's begin
  double end = 0;
  double issue_begin = 0; // on the host
  double issue_end = 0;
  std::optional<TraceCollective> collective;
};

struct TraceRank {
  Rank rank;
  std::string label; // "stage 3"
  std::vector<TraceKernel> kernels;
};

struct TraceJob {
  std::string device; // "H100 SXM 80 GB"
  int world_size = 1;
  double step = 0; // seconds
  std::string backend = "nccl";
  std::string name = "foreplan: a prediction, no measurement";
};

// One file for all the ranks given. HolisticTraceAnalysis wants a file a rank: give one.
void write_chrome_trace(std::ostream& out, TraceJob const& job, std::vector<TraceRank> const& ranks);

} // namespace foreplan

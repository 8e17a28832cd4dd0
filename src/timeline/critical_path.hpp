// The critical path: the chain of work and transfers, each waiting for the one before it, that the step's length is the
// sum of.
#pragma once

#include "units/ids.hpp"
#include "units/quantity.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace foreplan {

// What the time was spent on.
enum class PathKind : std::uint8_t {
  gemm,
  attention,
  memory_bound,
  tp,
  cp,
  dp,
  pp,
  host_optimizer, // Adam of the host's processors
  host_copy,      // between device and host
  drive,          // between host and drives
  host            // that issues
};
inline constexpr std::size_t path_kinds = 11;
std::string_view to_string(PathKind kind);

// Which part of the step an item belongs to.
enum class PathPart : std::uint8_t {
  setup,
  gather,
  forward,
  backward,
  weight_gradient,
  transfer,
  reduction,
  offload, // copies between memories
  codes,   // what is moved is quantized, dequantized
  optimizer
};
std::string_view to_string(PathPart part);

using PathSeconds = std::array<Seconds, path_kinds>;
Seconds sum(PathSeconds const& seconds);

// One item on the path.
struct PathStep {
  PathPart part = PathPart::forward;
  Stage stage;            // of a transfer: where it comes from
  Stage to;               // of a transfer
  std::int32_t slot = -1; // of passes: tells one from the next
  double start = 0;
  double end = 0;
  PathSeconds by_kind{}; // sums to end - start
};

// What the path does on one stage, or on neighbouring stages one after the other, if it does the same on each.
struct PathLeg {
  PathPart part = PathPart::forward; // forward stands for all passes
  Stage first;
  Stage last;
  std::int64_t forwards = 0; // passes (slots) on each of the stages
  std::int64_t backwards = 0;
  std::int64_t weight_gradients = 0; // where a schedule splits them from the backwards
  std::int64_t transfers = 0;        // between the stages and on to the next leg
  Seconds transfer_time{};
  Seconds time{}; // transfers not included
};

struct CriticalPath {
  std::vector<PathLeg> legs; // in order of time
  PathSeconds by_kind{};
  std::vector<Seconds> by_stage; // transfers not included
};

// `steps` in order of time.
CriticalPath summarize(std::vector<PathStep> const& steps, int stages);

// "stages 0 to 2: 1 forward each (150 ms, 3 transfers 2 ms) -> stage 3: 8 forward, 8 backward (1.2 s) -> optimizer (9 ms)";
// of a long path the first and last `most / 2` legs.
std::string in_words(CriticalPath const& path, std::size_t most = 10);

} // namespace foreplan

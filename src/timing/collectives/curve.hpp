// The time of a collective by its bytes, for one operation on one group: the algorithms and protocols that the library
// has there, each a straight line with a ramp, and the fastest of them at each size.
#pragma once

#include "cluster/collective_parameters.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace foreplan {

enum class CollectiveAlgorithm : std::uint8_t { ring, tree, nvls, nvls_tree, pat, direct };
enum class Protocol : std::uint8_t { ll, ll128, simple };
std::string_view to_string(CollectiveAlgorithm algorithm);
std::string_view to_string(Protocol protocol);

// Where the members sit and what carries them; rates are line rates in bytes/s and direction.
struct GroupShape {
  int members = 2;
  int nodes = 1;
  int on_a_node = 2;    // fewest members on one of the nodes
  int node_devices = 8; // devices of a whole node
  double scale_up = 0;  // of a device into the node's fabric
  double network = 0;   // out of a node for this group: of all NICs that its members use there
};

// `bytes` is nccl-tests' size: of the buffer for all-reduce and broadcast, of all ranks' parts together for all-gather
// and reduce-scatter, of all that a rank sends, its own part included, for all-to-all, of the message for send/receive.
// time(bytes) = latency + bytes * per_byte + sqrt(bytes * ramp) * per_byte: concave, so that doubling the bytes never more
// than doubles what stands above the latency.
struct CollectiveLine {
  double latency = 0;  // s
  double per_byte = 0; // s
  double ramp = 0;     // bytes
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  Protocol protocol = Protocol::simple;
  [[nodiscard]] double time(double bytes) const { return latency + per_byte * (bytes + std::sqrt(bytes * ramp)); }
};

inline constexpr int first_octave = 10; // 1 KiB
inline constexpr int octave_count = 26; // to 32 GiB

struct CollectiveCurve {
  std::array<CollectiveLine, 10> lines{};
  int line_count = 0;
  std::array<double, octave_count>
      factor{}; // measured / modelled at 2^(first_octave + i) bytes; 1 without measurements

  void add(CollectiveLine const& line) { lines[static_cast<std::size_t>(line_count++)] = line; }
};

// The model alone, without the measured correction.
CollectiveCurve collective_curve(CollectiveOp op, GroupShape const& shape, CollectiveLibrary library, ScaleUp topology,
                                 CollectiveValues const& values);
// With it.
CollectiveCurve collective_curve(CollectiveOp op, GroupShape const& shape, CollectiveModel const& model);

struct CollectiveTime {
  double seconds = 0;
  double latency = 0; // of no bytes, with the same correction
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  Protocol protocol = Protocol::simple;
};

// Smooth between octaves, constant outside of the table.
inline double correction_at(CollectiveCurve const& curve, double bytes) {
  double const position = std::log2(std::max(bytes, 1.0)) - first_octave;
  if (position <= 0)
    return curve.factor.front();
  if (position >= octave_count - 1)
    return curve.factor.back();
  auto const below = static_cast<std::size_t>(position);
  double const part = position - static_cast<double>(below);
  return curve.factor[below] * (1 - part) + curve.factor[below + 1] * part;
}

// The inner function of the search: plain values, no allocation.
inline CollectiveTime collective_time(CollectiveCurve const& curve, double bytes) {
  CollectiveTime best{.seconds = curve.lines[0].time(bytes),
                      .latency = curve.lines[0].latency,
                      .algorithm = curve.lines[0].algorithm,
                      .protocol = curve.lines[0].protocol};
  double least = best.latency;
  for (std::size_t i = 1; i < static_cast<std::size_t>(curve.line_count); ++i) {
    CollectiveLine const& line = curve.lines[i];
    least = std::min(least, line.latency);
    double const time = line.time(bytes);
    if (time < best.seconds)
      best = {.seconds = time, .latency = 0, .algorithm = line.algorithm, .protocol = line.protocol};
  }
  double const factor = correction_at(curve, bytes);
  best.seconds *= factor;
  best.latency = least * factor;
  return best;
}

// One size of one group: the same as collective_time(collective_curve(op, shape, model), bytes), without the whole table.
CollectiveTime collective_time(CollectiveOp op, GroupShape const& shape, CollectiveModel const& model, double bytes);

// Sets factor[first] to factor[last] from measured curves: the mean of log(measured / modelled) over those of like
// operation, group and size, drawn to 0 where little is near, and never more than a factor of e^most_correction.
inline constexpr double most_correction = 0.5;
void set_correction(CollectiveCurve& curve, CollectiveOp op, GroupShape const& shape,
                    std::vector<CollectiveResidual> const& residuals, int first, int last);

} // namespace foreplan

// How the collectives of one library run on one fabric: the block "collectives" of a hardware profile. The structure is
// NCCL's own cost model (src/graph/tuning.cc; RCCL has the same); its numbers are fitted to measured curves by
// `foreplan calibrate`, with the library's tuning tables as priors.
#pragma once

#include "cluster/evidence.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace foreplan {

class JsonReader;

enum class CollectiveLibrary : std::uint8_t { nccl, rccl };

// How the devices of a node reach each other. switched: every device through one port into switches. full_mesh: one link to
// every other device (xGMI), all of them together as wide as the port, so that a group of n devices uses n - 1 of them.
// hybrid_cube_mesh: the eight V100 of a DGX-1. pcie: each through its host link.
enum class ScaleUp : std::uint8_t { switched, full_mesh, hybrid_cube_mesh, pcie };

enum class CollectiveOp : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_receive };

std::string_view to_string(CollectiveLibrary library);
std::string_view to_string(ScaleUp topology);
std::string_view to_string(CollectiveOp op);

// A parameter, its prior and what moved it. `value` is what the model uses.
struct CollectiveParameter {
  std::string_view name; // key in the profile
  std::string_view unit; // "us", "" for a ratio, "KiB"
  std::string_view meaning;
  bool network = false; // of the network, else of the scale-up fabric
};

// The parameters by number. Times in seconds; rates as a fraction of the fabric's line rate.
namespace collective {
enum Parameter : std::size_t {
  base,           // s, fixed part of a collective, LL protocol
  hop,            // s, one ring step inside the node, LL
  hop_simple,     // s, the same with Simple, whose steps move whole slices
  ring,           // rings, and what is built of them, of the scale-up line rate
  point_to_point, // all-to-all and send/receive, of the scale-up line rate
  multicast,      // NVLS: buffer bytes per second of the scale-up line rate; 0: the fabric cannot
  own_share,      // rate at which a rank handles its own 1/n of the buffer, of the scale-up line rate
  ramp,           // bytes on the wire at which a transfer takes twice its time at full rate
  network,        // rings, of the NICs' line rate
  network_hop,    // s, one ring step between nodes, LL
  network_hop_simple,
  multicast_tree,     // NVLSTree over NVLS, 0 to 1
  network_all_to_all, // all-to-all and send/receive, of the NICs' line rate
  count
};
} // namespace collective

using CollectiveValues = std::array<double, collective::count>;

std::array<CollectiveParameter, collective::count> const& collective_parameters();
// The values with which the library's own tables start.
CollectiveValues collective_priors(CollectiveLibrary library);
// Standard deviation of the prior, of the logarithm; and how far a fit may go: up to this factor below and above.
std::array<double, collective::count> const& collective_prior_widths();
struct CollectiveRange {
  double below = 4;
  double above = 4;
};
std::array<CollectiveRange, collective::count> const& collective_ranges();

// Measured curves that a prediction leans on: the mean of log(measured / modelled) of one group shape.
struct CollectiveResidual {
  CollectiveOp op = CollectiveOp::all_reduce;
  int members = 0;
  int nodes = 1;
  double weight = 1; // of a curve measured on this very hardware
  // One number an octave, from 2^10 bytes on; octaves without a measurement count nothing.
  struct Octave {
    int log2_bytes = 0;
    double log_ratio = 0;
  };
  std::vector<Octave> octaves;
};

struct CollectiveModel {
  CollectiveLibrary library = CollectiveLibrary::nccl;
  ScaleUp topology = ScaleUp::switched; // of the node
  CollectiveValues values{};
  CollectiveValues prior{};                    // of this fabric: where the fit began
  std::array<int, collective::count> points{}; // measured ones whose time tells a value from one a quarter larger
  std::vector<CollectiveResidual> residuals;   // may be empty
  double band = 0; // spread of log(measured / predicted) of left-out curves: two thirds lie within
};

// Whether the fit moved the value from its prior: by points that tell it, or by many that each tell little of it.
bool is_moved(CollectiveModel const& model, std::size_t parameter);

// Reads the block of a node so joined; the origins of its numbers are added to `sources`.
CollectiveModel read_collective_model(JsonReader const& reader, ScaleUp topology, std::vector<Source>& sources);

} // namespace foreplan

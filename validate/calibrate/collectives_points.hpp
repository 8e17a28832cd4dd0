// Measured collectives: the rows of published/collectives.csv, or of files that users have (nccl-tests, rccl-tests).
#pragma once

#include "timing/collectives/curve.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foreplan {

struct MeasuredCollective {
  std::string id;       // of the row
  std::string curve;    // points of one cluster, group, operation, library and setting
  std::string chip;     // "h100"
  std::string hardware; // "8xH100-SXM NVSwitch3 node"
  std::string source;
  std::string trust;    // A, B, C
  bool usable = true;   // fit_ok: not forced, mistuned, rounded, read off a plot
  int nodes = 1;        // as the source counts them; an NVLink domain may be wider (shape_of)
  int members = 2;
  double nic_rate = 0;  // bytes/s a device; 0: not stated
  CollectiveOp op = CollectiveOp::all_reduce;
  double bytes = 0;     // as CollectiveLine's
  double seconds = 0;
};

// What the chips of one generation share: the links inside a node. A fit's parameters belong to one fabric and library.
struct Fabric {
  std::string_view name; // "NVLink 4, NCCL"
  CollectiveLibrary library;
  ScaleUpTopology topology;
  bool multicast; // the switches add (NVLS)
};

struct FabricOfChip {
  std::string_view chip;
  int fabric;         // in fabrics()
  double scale_up;    // line rate of a device, bytes/s and direction
  int domain;         // devices joined by it
  double nic;         // usual line rate of the NICs, a device
};

std::span<Fabric const> fabrics();
FabricOfChip const* fabric_of(std::string_view chip); // nullptr: unknown
std::string known_chips();                            // for errors

GroupShape shape_of(MeasuredCollective const& point);

// A table with the columns of collectives.csv. Throws InputError that names file, line, column, value and rule.
std::vector<MeasuredCollective> read_collective_table(std::string const& path);

} // namespace foreplan

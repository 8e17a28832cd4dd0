// Measured collectives: the rows of published/collectives.csv, or of files that users have (nccl-tests, rccl-tests).
#pragma once

#include "timing/collectives/curve.hpp"

#include <map>
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
  std::string trust;  // A, B, C
  bool usable = true; // fit_ok: not forced, mistuned, rounded, read off a plot
  int nodes = 1;      // as the source counts them; an NVLink domain may be wider (shape_of)
  int members = 2;
  double nic_rate = 0; // bytes/s a device; 0: not stated
  CollectiveOp op = CollectiveOp::all_reduce;
  double bytes = 0; // as CollectiveLine's
  double seconds = 0;
};

// What the chips of one generation share: the links inside a node. A fit's parameters belong to one fabric and library.
struct CollectiveFabric {
  std::string_view name; // "NVLink 4, NCCL"
  CollectiveLibrary library;
  ScaleUp topology;
  bool multicast; // the switches add (NVLS)
};

struct FabricOfChip {
  std::string_view chip;
  int fabric;      // in collective_fabrics()
  double scale_up; // line rate of a device, bytes/s and direction
  int domain;      // devices joined by it
  double nic;      // usual line rate of the NICs, a device
};

std::span<CollectiveFabric const> collective_fabrics();
FabricOfChip const* fabric_of(std::string_view chip); // nullptr: unknown
std::string collective_chips();                       // for errors

GroupShape shape_of(MeasuredCollective const& point);

struct CollectiveTable {
  std::vector<MeasuredCollective> points;
  std::map<std::string, int> left_out; // "chip gh200": rows
};

// A table with the columns of published/collectives.csv (needed: chip, gpus, op, bytes, time_us). Rows of chips and
// operations without a model are left out. Throws InputError that names file, line, column, value and rule.
CollectiveTable read_collective_table(std::string const& path);

// A file of either kind: a table, or what nccl-tests and rccl-tests write. Those do not say all: `chip` is used where the
// file names no device (empty: it must), `nic_rate` (bytes/s a device; 0: the chip's usual) in every case.
CollectiveTable read_collective_points(std::string const& path, std::string const& chip = {}, double nic_rate = 0);

// "NVIDIA H100 80GB HBM3" -> "h100"; empty: unknown.
std::string chip_named(std::string_view device);

} // namespace foreplan

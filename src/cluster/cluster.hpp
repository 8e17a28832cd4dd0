// The machine: a hardware profile (chip, node, fabric, each number with unit, source and kind; read from
// hardware_profiles/*.json by read_profile()) and how many nodes of it.
#pragma once

#include "cluster/evidence.hpp"
#include "units/ids.hpp"
#include "units/quantity.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace foreplan {

struct Chip {
  std::string name;
  FlopsPerSecond bf16_peak; // dense
  FlopsPerSecond fp32_peak;
  Bytes memory; // as the driver shows it; HardwareProfile::reserved is not usable by tensors
  BytesPerSecond memory_bandwidth;
  int multiprocessors = 0;
};

// Fraction of the data-sheet rate that a class of kernels reaches.
struct Efficiencies {
  double gemm = 0;
  double attention = 0;
  double memory_bound = 0; // of the memory bandwidth
  double scale_up = 0;     // of the node's links
  double network = 0;      // of the NICs' line rate
};

struct Node {
  int devices = 0;
  BytesPerSecond scale_up;  // per device and direction
  Seconds scale_up_latency; // per hop of a collective
  int nics = 0;             // device i uses NIC i * nics / devices
  BytesPerSecond nic;       // per NIC and direction
  Seconds network_latency;  // per hop of a collective
};

struct HardwareProfile {
  std::string name;
  Chip chip;
  Node node;
  Efficiencies efficiency;
  Seconds kernel_fixed;               // device time of a kernel beyond its roofline
  Seconds issue;                      // host time to issue one kernel or collective
  Seconds collective_base;            // fixed part of a collective
  int collective_multiprocessors = 0; // SMs that a running collective takes
  Bytes reserved;                     // context, libraries, communicators: not usable by tensors
  std::vector<Source> sources;        // of every number, in the file's order
};

// Departures from the profile of single devices, for slow GPUs and NICs.
struct Exception {
  Rank device;              // position in the job: node * devices + index in the node
  double compute_speed = 1; // of the profile's
  double nic_speed = 1;     // of the NIC that the device uses
  double scale_up_speed = 1;
};

struct Cluster {
  HardwareProfile profile;
  int nodes = 1;
  std::vector<Exception> exceptions;
  [[nodiscard]] int devices() const { return nodes * profile.node.devices; }
  [[nodiscard]] bool homogeneous() const { return exceptions.empty(); }
};

} // namespace foreplan

// The machine: a hardware profile (chip, node, fabric, each number with unit, source and kind; read from
// hardware_profiles/*.json by read_profile()) and how many nodes of it.
#pragma once

#include "cluster/collective_parameters.hpp"
#include "cluster/evidence.hpp"
#include "cluster/kernel_parameters.hpp"
#include "cluster/op_costs.hpp"
#include "units/ids.hpp"
#include "units/quantity.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace foreplan {

// Peaks are dense ones. An optional quantity that the file does not give is 0.
struct Chip {
  std::string name;
  FlopsPerSecond bf16_peak;
  FlopsPerSecond fp32_peak;                                                     // outside matrix units
  FlopsPerSecond tf32_peak, fp16_peak, fp8_peak, fp6_peak, fp4_peak, int8_peak; // optional
  Bytes memory; // as the driver shows it; HardwareProfile::reserved is not usable by tensors
  BytesPerSecond memory_bandwidth;
  int multiprocessors = 0;
  Bytes last_level_cache;    // optional
  double max_clock_mhz = 0;  // optional
  double load_clock_mhz = 0; // optional: what dense matrix products run at
  double power_watts = 0;    // optional: the limit
};

// Fraction of the data-sheet rate that a class of kernels reaches.
struct Efficiencies {
  double gemm = 0;
  double attention = 0;
  double memory_bound = 0; // of the memory bandwidth
  double scale_up = 0;     // of the node's links
  double network = 0;      // of the NICs' line rate
};

// Processors, memory and disks of a node, for everything that is offloaded. Devices, sockets and drives are spread evenly:
// device i stands by socket i * sockets / devices.
struct Host {
  std::string processor;
  int sockets = 0;
  int cores = 0;                       // of all sockets
  Bytes memory;                        // of the node
  BytesPerSecond memory_bandwidth;     // of the node, measured by STREAM or the like
  BytesPerSecond core_bandwidth{10e9}; // what one core moves; prior: half of what a Xeon's core reaches in STREAM
  BytesPerSecond link;                 // of pinned copies between one device and the host, per direction
  int devices_per_link = 1;            // devices that share the way to their host: a PCIe switch, a processor
  BytesPerSecond shared_link;          // of that way, per direction; optional: that of one link
  bool half_duplex = false;            // both directions share it
  int systems = 1;                     // computers that the node consists of; drives are shared within one
  int drives = 0;                      // local NVMe
  Bytes drive_capacity;                // of one
  BytesPerSecond drive_read;           // of one
  BytesPerSecond drive_write;
  Seconds drive_latency{100e-6}; // of one request; prior: data sheets of flash drives, unverified
};

enum class FabricKind : std::uint8_t { infiniband, roce, efa };

// What joins nodes: NICs hang from leaf switches, these from spine switches.
struct Fabric {
  FabricKind kind = FabricKind::infiniband;
  bool rails = false;          // NIC i of every node of a unit hangs from leaf i; else all NICs of a node from one leaf
  int nodes_per_leaf = 0;      // nodes of a unit: their NICs hang from the same leaf switches; 0: those of all nodes do
  double oversubscription = 1; // of a leaf: bandwidth of the NICs below it over that of its links to spines
  // What a job over many nodes gets of the NICs' rate, as measured: by nodes that a group spans, ascending; logarithmic in
  // between, constant beyond. Empty: all of it.
  struct SpanShare {
    int nodes = 0;
    double share = 1;
  };
  std::vector<SpanShare> shares;
  Seconds leaf_latency;  // NIC to NIC through one leaf switch
  Seconds spine_latency; // NIC to NIC through leaf, spine, leaf
};

struct Node {
  int devices = 0;
  ScaleUp topology = ScaleUp::switched;
  int switches = 0;                // of the scale-up fabric
  BytesPerSecond scale_up;         // per device and direction
  Seconds scale_up_latency;        // per hop of a collective
  int nics = 0;                    // device i uses NIC i * nics / devices
  BytesPerSecond nic;              // per NIC and direction
  Seconds network_latency;         // per hop of a collective
  int devices_per_pcie_switch = 0; // optional: devices, with their NICs, under one PCIe switch
  std::optional<Host> host;
};

struct HardwareProfile {
  std::string name;
  Chip chip;
  Node node;
  Efficiencies efficiency;
  Seconds kernel_fixed;                       // device time of a kernel beyond its roofline
  Seconds issue;                              // host time to issue one kernel or collective
  Seconds collective_base;                    // fixed part of a collective
  int collective_multiprocessors = 0;         // SMs that a large collective takes: its channels
  Bytes reserved;                             // context, libraries, communicators: not usable by tensors
  std::optional<CollectiveModel> collectives; // none: rings at the efficiencies of scale-up and network
  std::optional<Fabric> fabric;               // none: non-blocking between all NICs
  double device_hour_price = 0;               // US dollars; optional: 0
  std::optional<KernelParameters> kernels;    // none: one efficiency a class of kernels
  std::optional<OpCosts> ops;                 // measured on the machine itself: goes before all else that it names
  std::vector<Source> sources;                // of every number, in the file's order
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

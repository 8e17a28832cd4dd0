// The hardware profile of the machine that Foreplan runs on: a "chip" is one rank's share of its cores.
#pragma once

#include "validate/calibrate/machine_fit.hpp"

#include <string>

namespace foreplan {

struct MachineFacts {
  std::string processor; // "AMD EPYC"
  int cores = 1;         // that this process may use
  int sockets = 1;
  double memory = 0;           // bytes
  double last_level_cache = 0; // bytes; 0: not known
  int ranks = 1;
  int threads = 1;         // of a rank's kernels
  std::string measured_by; // "foreplan-suite, 2026-11-30, oneDNN 2.6.3, Open MPI 4.1.4"
};

// A file in the format of hardware_profiles/.
std::string machine_profile(MachineFacts const& facts, MachineRows const& rows, OpCosts const& costs);

} // namespace foreplan

// The machine that this process runs on, as hwloc and the operating system describe it.
#pragma once

#include <string>

namespace foreplan {

struct Topology {
  std::string processor = "unknown processor";
  int cores = 1; // that this process may use
  int sockets = 1;
  double memory = 0;           // bytes
  double last_level_cache = 0; // bytes of one; 0: not known
};

Topology detect_topology();

} // namespace foreplan

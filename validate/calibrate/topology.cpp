#include "validate/calibrate/topology.hpp"

#ifdef FOREPLAN_HWLOC
#include <hwloc.h>
#endif

#include <algorithm>
#include <thread>

#include <unistd.h>

namespace foreplan {

#ifdef FOREPLAN_HWLOC
namespace {

int at_least_one(int count) { return std::max(1, count); }

std::string processor_of(hwloc_topology_t topology) {
  for (hwloc_obj_type_t type : {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_MACHINE})
    if (hwloc_obj_t const object = hwloc_get_obj_by_type(topology, type, 0))
      if (char const* name = hwloc_obj_get_info_by_name(object, "CPUModel"))
        return name;
  return Topology{}.processor;
}

double last_level_cache_of(hwloc_topology_t topology) {
  for (hwloc_obj_type_t type : {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE})
    if (hwloc_obj_t const object = hwloc_get_obj_by_type(topology, type, 0))
      return static_cast<double>(object->attr->cache.size);
  return 0;
}

} // namespace

Topology detect_topology() {
  hwloc_topology_t topology = nullptr;
  Topology result;
  if (hwloc_topology_init(&topology) == 0 && hwloc_topology_load(topology) == 0) {
    result.processor = processor_of(topology);
    result.sockets = at_least_one(hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE));
    result.cores = at_least_one(hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE));
    result.last_level_cache = last_level_cache_of(topology);
  }
  if (topology != nullptr)
    hwloc_topology_destroy(topology);
  result.memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return result;
}
#else
Topology detect_topology() {
  Topology result;
  result.cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  result.memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return result;
}
#endif

} // namespace foreplan

#pragma once

#include "planner/simulate.hpp"
#include "report/details.hpp"

namespace foreplan {

Details details_of(Simulation const& simulation, Cluster const& cluster);

} // namespace foreplan

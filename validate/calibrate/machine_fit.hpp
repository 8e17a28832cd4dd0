// The costs of ops that describe what was measured on this machine.
#pragma once

#include "cluster/op_costs.hpp"
#include "validate/calibrate/machine_rows.hpp"

#include <vector>

namespace foreplan {

// The cost of least squared relative error over the rows of one op and dtype, no part of it negative; outliers beyond 15 %
// count less. Rows of a communication: `steps` of a ring each, which share its fixed part.
OpCost fit_op_cost(std::vector<MeasuredOp> const& rows);

// One cost for each op and dtype that was measured.
OpCosts fit_machine(MachineRows const& rows);

} // namespace foreplan

#pragma once

#include "program/program.hpp"
#include "units/quantity.hpp"

namespace foreplan {

// Flops of matrix products and attention that a step runs on all ranks together, recomputed ones too.
Flops executed_flops(Program const& program);

} // namespace foreplan

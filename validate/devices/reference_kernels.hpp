// The interpreter's kernels on a device's storage: the meaning of every op kind, and what runs where a backend has no
// kernel of its own. Slow.
#pragma once

#include "validate/devices/backend.hpp"
#include "validate/devices/element.hpp"

namespace foreplan {

// In fp32 or fp64 storage in place; as planned in fp32 on copies, each result rounded to its dtype.
void run_reference_kernel(Storage storage, Op const& op, std::span<Operand const> reads,
                          std::span<Operand const> writes, KernelContext const& context);

} // namespace foreplan

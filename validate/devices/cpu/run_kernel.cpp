// Which kernel runs an op on this CPU.
#include "validate/devices/backend.hpp"
#include "validate/devices/reference_kernels.hpp"

namespace foreplan {

void run_kernel(Op const& op, std::span<Operand const> reads, std::span<Operand const> writes,
                KernelContext const& context, int /*threads*/) {
  switch (op.kind) {
    default: return run_reference_kernel(Storage::as_planned, op, reads, writes, context);
  }
}

} // namespace foreplan

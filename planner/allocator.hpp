// What PyTorch's caching allocator has reserved when a stage's tensors peak, and the odds that it fits on the device.
#pragma once

#include "model/model.hpp"
#include "plan/plan.hpp"
#include "program/program.hpp"
#include "timeline/memory.hpp"
#include "units/quantity.hpp"

#include <vector>

namespace foreplan {

// Blocks rounded up and holes that nothing fits into, of the tensors. Published peaks of reserved over those of allocated
// memory are 1.02 to 1.10 (notes: accuracy.md, section 4); within it, 0.08 leaves the Ultra-Scale sweep without bias.
inline constexpr double allocator_waste = 0.08;

// Spread of log(measured / predicted) peaks of reserved memory over published runs (`foreplan accuracy memory`).
inline constexpr double memory_spread = 0.10;

// Of a stage's ranks.
struct StagePeak {
  MemoryPeak tensors;
  Bytes needed;   // what the allocator cannot do without
  Bytes reserved; // and what it takes where there is room
};

// Tensors, waste, and what cannot be reused when the tensors peak:
//   buffers of gathers over tp          of asynchronous linears, never given back (nanotron, parallel/utils.py:
//                                       MemoryBuffer, "allgather" and "allgather2"; Megatron-LM: GlobalMemoryBuffer)
//   16-bit gradients                    of all parameters at the end of a backward, where they are added to those in fp32
//                                       only then (nanotron, optim/gradient_accumulator.py: backward; DeepSpeed,
//                                       runtime/bf16_optimizer.py)
Bytes needed_memory(Program const& program, StageMemory const& memory);

// Inputs of reduce-scatters over tp. They run on a stream of their own, and c10d's ProcessGroupNCCL marks their inputs
// (record_stream): the memory comes back when the device is past them, while the host is ahead of it by up to a forward.
// Before the allocator gives up it waits for them. In a pipeline the host waits for each receive.
Bytes waiting(Program const& program, StageProgram const& stage);

// Of the stages that may be the fullest: the first, the second and the last. Does not depend on the number of
// micro-batches beyond those in flight, so it is found with few.
std::vector<StagePeak> stage_peaks(Model const& model, Plan const& plan);

// That a plan that needs this much runs: with peaks log-normal around the prediction. Said to fit from `confident` on; to
// be borderline between this and 1 - `confident`.
inline constexpr double confident = 0.8;
double probability_of_fit(Bytes needed, Bytes usable);

} // namespace foreplan

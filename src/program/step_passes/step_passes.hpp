// Step passes: each adds to or rearranges the issue order of one stage. In the order of compile.cpp.
#pragma once

#include "program/program.hpp"

#include <vector>

namespace foreplan {

// One F or B of a schedule.
struct Work {
  SlotKind kind = SlotKind::forward;
  Chunk chunk;
  MicroBatch micro_batch;
};

// Schedules: the order of a stage's slots.
std::vector<Work> gpipe(Plan const& plan, Stage stage);
std::vector<Work> one_f_one_b(Plan const& plan, Stage stage);
std::vector<Work> interleaved(Plan const& plan, Stage stage);

// Puts a schedule's slots into the issue order, with the transfers between stages.
void pipeline(Program const& program, StageProgram& stage, std::vector<Work> const& order);

// Lays the stage's parameters out in flat buckets and gives every parameter its home there.
void flat_parameters(Program const& program, StageProgram& stage);

// Data parallelism: reduces gradients in the last micro-batch (stage 0: all-reduce; stage 1: reduce-scatter to the shard
// that a rank updates, and a gather of the updated parameters at the beginning of the step).
void zero(Program const& program, StageProgram& stage);

// Global norm, clipping, Adam; the end of the step.
void optimizer(Program const& program, StageProgram& stage);

// For passes: writing down step-level ops.
Op step_op(StageProgram& stage, OpKind kind, std::string name, Stream stream, std::vector<TensorId> reads,
           std::vector<TensorId> writes);
TensorId add_tensor(StageProgram& stage, Tensor tensor);
BufferId add_buffer(StageProgram& stage, Buffer buffer);

// The whole of a stage buffer, placed as said.
Tensor flat_tensor(StageProgram const& stage, BufferId buffer, Placement placement);
// This rank's shard of it among the ranks that differ along `axes`, one after the other in rank order; sharded there,
// otherwise placed as said.
Tensor flat_shard(StageProgram const& stage, Plan const& plan, BufferId buffer, Placement placement, AxisSet axes);
// What a rank updates of a flat buffer of the bucket, after the data-parallel reduction: its shard, or all of it.
Tensor own_part(StageProgram const& stage, Plan const& plan, Bucket const& bucket, BufferId buffer,
                Placement placement);

} // namespace foreplan

// Step passes: each adds to or rearranges the issue order of one stage. In the order of compile.cpp.
#pragma once

#include "program/program.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace foreplan {

// One F, B or W of a schedule.
struct Work {
  SlotKind kind = SlotKind::forward;
  Chunk chunk;
  MicroBatch micro_batch;
};

// The order of every stage's slots, by stage.
std::vector<std::vector<Work>> schedule(Plan const& plan);

// Schedules of which each stage's order is known by itself.
std::vector<Work> gpipe(Plan const& plan, Stage stage);
std::vector<Work> one_f_one_b(Plan const& plan, Stage stage);
std::vector<Work> interleaved(Plan const& plan, Stage stage);
std::vector<Work> zb_h1(Plan const& plan, Stage stage);
std::vector<Work> zb_h2(Plan const& plan, Stage stage);
std::vector<Work> dualpipe_v(Plan const& plan, Stage stage);
// Both are 1F1B with more or fewer forwards in front and weight gradients behind: `forwards` before the first backward, W
// of micro-batch j after B of j + `lag`.
std::vector<Work> one_f_one_b_one_w(Plan const& plan, std::int64_t forwards, std::int64_t lag);

// When a micro-batch's four passes begin on a stage, in units of a pass; micro-batch j comes 6 j later.
struct VBlock {
  std::int64_t forward[2];
  std::int64_t backward[2]; // by chunk
};
// V-shaped schedules (Pipeline Parallelism with Controllable Memory, arXiv 2405.15362): their blocks, by stage, and the
// most chunks of activations that a stage may hold.
struct VPattern {
  std::vector<VBlock> blocks;
  std::int64_t most_in_flight = 0;
};
VPattern zb_v(Plan const& plan);
VPattern v_half(Plan const& plan);
VPattern v_min(Plan const& plan);
// Every stage's order that follows from a pattern.
std::vector<std::vector<Work>> schedule_v(Plan const& plan, VPattern const& pattern);
// The shorter of these orders and of the authors' (squeezed_v.cpp), when F, B and W take equally long.
std::vector<std::vector<Work>> shorter_v(Plan const& plan, VPattern const& pattern);

// A schedule run with F, B and W of a chunk taking one unit each (a B that is not split two) and transfers none: when every
// slot begins, by stage and position.
std::vector<std::vector<std::int64_t>> unit_starts(Plan const& plan, std::vector<std::vector<Work>> const& orders);
int units_of(Plan const& plan, SlotKind kind);

// A work with its transfers: its receive is issued before one slot of the order, its send behind another, and the memory of
// what it sends is taken back before a third.
struct PlacedWork {
  Work work;
  std::size_t receive_before = 0; // positions in the stage's order
  std::size_t send_behind = 0;
  std::size_t release_before = 0; // may lie behind its end
};
std::vector<std::vector<PlacedWork>> place_transfers(Plan const& plan, std::vector<std::vector<Work>> const& orders);

// Puts a schedule's slots into the issue order, with the transfers between stages.
void pipeline(Program const& program, StageProgram& stage, std::vector<PlacedWork> const& order);

// Lays the stage's parameters out in flat buckets and gives every parameter its home there.
void flat_parameters(Program const& program, StageProgram& stage);

// Data parallelism: reduces gradients in the last micro-batch (stage 0: all-reduce; stage 1: reduce-scatter to the shard
// that a rank updates, and a gather of the updated parameters at the beginning of the step).
void zero(Program const& program, StageProgram& stage);
// Stages 2 and 3: reduces gradients in every micro-batch to the shard that accumulates them.
void zero_2(Program const& program, StageProgram& stage);
// Stage 3: gathers the parameters of a layer for each use of it.
void zero_3(Program const& program, StageProgram& stage);

// Global norm, clipping, Adam; the end of the step.
void optimizer(Program const& program, StageProgram& stage);

// ZeRO-Offload: the optimizer's states, or a part of them, in the host's memory and updated there.
void offload(Program const& program, StageProgram& stage);

// ZeRO-Infinity: parameters' shards, and activation checkpoints, outside the device. ZeRO-Offload with stages 2 and 3:
// the gradients' shards, too.
void offload_parameters(Program const& program, StageProgram& stage);
void offload_gradients(Program const& program, StageProgram& stage);
void offload_checkpoints(Program const& program, StageProgram& stage);

// For passes: writing down step-level ops.
Op step_op(StageProgram& stage, OpKind kind, std::string name, Stream stream, std::vector<TensorId> reads,
           std::vector<TensorId> writes);
TensorId add_tensor(StageProgram& stage, Tensor tensor);
BufferId add_buffer(StageProgram& stage, Buffer buffer);

// Activations, or their gradient, between two layers: a tensor like a block's input.
Tensor boundary_tensor(Program const& program, BufferRef buffer);
// Whether a chunk's layer is a block that runs again in the backward, by the plan's `recompute`.
bool is_recomputed(Program const& program, LayerRange chunk, int layer);

// The whole of a stage buffer, placed as said.
Tensor flat_tensor(StageProgram const& stage, BufferId buffer, Placement placement);
// This rank's shard of it among the ranks that differ along `axes`, one after the other in rank order; sharded there,
// otherwise placed as said.
Tensor flat_shard(StageProgram const& stage, Plan const& plan, BufferId buffer, Placement placement, AxisSet axes);
// The sum of a bucket's gradients in `wire` over the ranks that see other tokens, in place; with `over_replicas` also over the
// replicas of the shards. Returns where the rank's part of it is.
TensorId reduce_gradients(Plan const& plan, StageProgram& stage, std::size_t k, BufferId wire, bool over_replicas,
                          std::vector<Element>& result);
// Where the reduction takes place: the bucket's gradients, or a temporary in the reduction's dtype with a copy of them.
BufferId gradients_on_wire(Plan const& plan, StageProgram& stage, std::size_t k, std::vector<Element>& result);
// ZeRO++ (zero_pp.cpp). Each returns or lists the temporaries that hold codes, for whoever comes behind to release.
// The bucket's parameters from all shards, as codes if the plan says so.
std::vector<BufferRef> gather_parameters(Plan const& plan, StageProgram& stage, std::size_t k,
                                         std::vector<Element>& result);
// hpZ: the inner group's ranks hold a bucket's parameters between them, in the parameters' dtype or as codes and scales.
struct SecondaryShard {
  TensorId values;
  TensorId scales;
};
SecondaryShard add_secondary_shard(Plan const& plan, StageProgram& stage, std::size_t k);
void keep_secondary_shard(Plan const& plan, StageProgram& stage, std::size_t k, SecondaryShard const& shard,
                          std::vector<Element>& result);
std::vector<BufferRef> gather_secondary_shards(Plan const& plan, StageProgram& stage, std::size_t k,
                                               SecondaryShard const& shard, std::vector<Element>& result);
// qgZ: the rank's shard of the sum of the bucket's gradients.
TensorId reduce_quantized_gradients(Plan const& plan, StageProgram& stage, std::size_t k, std::vector<Element>& result,
                                    std::vector<BufferRef>& temporaries);
// The parts of a slot, in issue order, cut behind each layer after which `cut` is true.
std::vector<Slot> cut_slot(StageProgram& stage, Slot slot, std::function<bool(int layer)> const& cut);

// What a rank updates of a flat buffer of the bucket, after the data-parallel reduction: its shard, or all of it.
Tensor own_part(StageProgram const& stage, Plan const& plan, Bucket const& bucket, BufferId buffer,
                Placement placement);

} // namespace foreplan

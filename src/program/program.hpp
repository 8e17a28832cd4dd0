// The program: what a plan compiles to. Layer programs are templates stored once per kind of layer; a stage program is
// the host's issue order of one rank class, made of slots (which refer to layer programs) and step-level ops.
// The program knows model and plan; it holds amounts (shapes), never durations.
#pragma once

#include "model/model.hpp"
#include "plan/plan.hpp"
#include "plan/process_groups.hpp"
#include "units/ids.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace foreplan {

// ---------------------------------------------------------------------------------------------------------- placement

// What a tensor is along one axis: the same on all ranks, cut along a dimension, a sum (or maximum) still to be taken, or
// the terms of the sum that is this rank's shard, one of each rank, side by side.
struct AxisPlacement {
  enum class Kind : std::uint8_t { replicated, sharded, partial_sum, partial_max, terms };
  Kind kind = Kind::replicated;
  std::int8_t dimension = 0; // of the shape, when sharded
  friend bool operator==(AxisPlacement const&, AxisPlacement const&) = default;
};
inline constexpr AxisPlacement replicated{};
inline constexpr AxisPlacement partial_sum{AxisPlacement::Kind::partial_sum, 0};
inline constexpr AxisPlacement partial_max{AxisPlacement::Kind::partial_max, 0};
inline constexpr AxisPlacement sum_terms{AxisPlacement::Kind::terms, 0};
constexpr AxisPlacement sharded(int dimension) {
  return {AxisPlacement::Kind::sharded, static_cast<std::int8_t>(dimension)};
}

struct Placement {
  std::array<AxisPlacement, axis_count> along{};
  AxisPlacement& operator[](Axis axis) { return along[static_cast<std::size_t>(axis)]; }
  AxisPlacement const& operator[](Axis axis) const { return along[static_cast<std::size_t>(axis)]; }
  friend bool operator==(Placement const&, Placement const&) = default;
};
// The same, but placed as said along these axes.
Placement placed(Placement placement, AxisSet axes, AxisPlacement along);
// From one rank's shard of `elements` to its neighbour's: the shards of the ranks that differ along `axes` lie one after
// the other, in rank order.
std::array<std::int64_t, axis_count> shard_strides(Plan const& plan, AxisSet axes, std::int64_t elements);
std::string to_string(Placement const& placement); // "tp shard 0, dp partial sum"

// ---------------------------------------------------------------------------------------------------- buffers, tensors

enum class Category : std::uint8_t { parameters, gradients, optimizer, activations, logits, communication, scratch };
inline constexpr int category_count = 7;
std::string_view to_string(Category category);

// Storage. Persistent buffers live for the whole run; the others from the issue of a first writer to the op that releases
// them: once per (layer, micro-batch) those of layer programs, any number of times in a step those of stages (a gathered
// weight lives once per gather).
struct Buffer {
  std::string name;
  Category category = Category::scratch;
  DType dtype = DType::fp32;
  std::int64_t elements = 0;
  bool persistent = false;
  MemoryTier tier = MemoryTier::device;
};

// Where a tensor's storage is found. A layer program's references are resolved per (layer, micro-batch):
struct BufferRef {
  enum class Scope : std::uint8_t {
    local,              // buffers[index] of the layer program, one instance per (layer, micro-batch)
    input,              // activations entering the layer: boundary `layer`
    output,             // activations leaving it: boundary `layer + 1`
    output_gradient,    // gradient of boundary `layer + 1`
    input_gradient,     // gradient of boundary `layer`
    parameter,          // parameters[index] of the layer, a view of a flat buffer of the stage
    gradient,           // its accumulated gradient, likewise
    tokens,             // token ids of the micro-batch (data: always there, never released)
    labels,             // the ids to predict
    stage,              // buffers[index] of the stage program
    activation,         // stage programs only: boundary `index` of the op's micro-batch
    activation_gradient // stage programs only: gradient of boundary `index`
  };
  Scope scope = Scope::local;
  std::int32_t index = 0;
  friend auto operator<=>(BufferRef const&, BufferRef const&) = default;
};

// A view of a buffer. Row-major; dimension 0 of an activation counts tokens, sequence by sequence. The tokens of all
// ranks of a context-parallel group stand rank by rank; which those of a rank are, token_layout.hpp says.
struct Tensor {
  std::string name;
  BufferRef buffer;
  std::int64_t offset = 0;                       // elements from the buffer's beginning
  std::array<std::int64_t, axis_count> stride{}; // added to the offset for each step of the rank's index: its own shard
  std::vector<std::int64_t> shape;
  DType dtype = DType::bf16;
  Placement placement{};
  Category category = Category::activations; // of boundary tensors; local buffers carry their own
  // What strategies look at, set by the builder of the layer:
  int split_dimension = -1; // the dimension that tensor parallelism cuts; -1: it keeps the tensor whole
  bool residual = false;    // outside the tensor-parallel regions: sequence parallelism cuts its tokens

  [[nodiscard]] std::int64_t elements() const {
    std::int64_t product = 1;
    for (std::int64_t size : shape)
      product *= size;
    return product;
  }
  // Of the shard (or tensor) that this is a part of; 0: it is all of it.
  std::int64_t whole_elements = 0;
  // The block of its buffer that belongs to the tp rank so many places before this one; -1: where offset says.
  int hop = -1;
  int hops = 1; // such blocks in the buffer: ranks of the group
  [[nodiscard]] bool is_own_shard() const { return stride != std::array<std::int64_t, axis_count>{}; }
  // Where it begins in its buffer on the rank at `at`.
  [[nodiscard]] std::int64_t offset_on(Coordinate const& at) const {
    std::int64_t result = offset;
    if (hop >= 0)
      result += (at.along(Axis::tp) + hops - hop) % hops * elements();
    for (Axis axis : all_axes)
      result += stride[static_cast<std::size_t>(axis)] * at.along(axis);
    return result;
  }
};

// ---------------------------------------------------------------------------------------------------------------- ops

// Device streams of a rank. Each runs its ops in issue order; across streams only waits order.
enum class Stream : std::uint8_t {
  compute,
  tp,
  cp,
  dp,
  replica,
  copy_down, // device to host
  copy_up,
  host, // computation by the CPU
  disk_read,
  disk_write,
  send_activation,
  receive_activation,
  send_gradient,
  receive_gradient
};
inline constexpr int stream_count = 14;
std::string_view to_string(Stream stream);

// The kinds of ops. reads -> writes are positional; "rw" tensors stand in both lists. Exact semantics: op_kinds.md in
// this folder. [..] marks an operand that may be absent.
enum class OpKind : std::uint8_t {
  // ends of the network
  embedding_forward,  // tokens, table -> y
  embedding_backward, // tokens, dy, rw dtable -> dtable
  add_positions,      // x, table -> y
  position_gradient,  // dy, rw dtable -> dtable
  loss_maximum,       // logits -> maximum
  loss_sums,          // logits, labels, maximum -> sums (target logit and sum of exponentials of each token)
  loss_forward,       // sums, rw loss -> loss
  loss_backward,      // rw logits, labels, maximum, sums -> dlogits (in place)
  // blocks
  norm_forward,               // x, weight, [bias] -> y
  norm_backward,              // dy, x, weight, [dresidual], rw dweight, [rw dbias] -> dx, dweight, [dbias]
  linear_forward,             // x, weight, [bias] -> y
  linear_input_gradient,      // dy, weight -> dx
  linear_weight_gradient,     // x, dy, [rw dweight], [rw dbias] -> dweight, [dbias] (not read: written afresh)
  accumulate,                 // x, rw sum -> sum
  rope_forward,               // rw qkv -> qkv
  rope_backward,              // rw dqkv -> dqkv
  attention_forward,          // qkv, [kv] -> o, lse
  attention_backward,         // qkv, o, lse, do, [kv], [rw dqkv] -> dqkv, [dkv]
  attention_scores,           // qkv -> scores
  attention_softmax,          // scores -> probabilities (scaled, causal)
  attention_context,          // probabilities, qkv -> o
  attention_context_backward, // probabilities, qkv, do -> dprobabilities, dqkv (its value part)
  attention_softmax_backward, // probabilities, dprobabilities -> dscores
  attention_scores_backward,  // qkv, dscores, rw dqkv -> dqkv (adds its query and key parts)
  take_keys_values,           // qkv -> kv
  put_keys_values,            // dkv, rw dqkv -> dqkv (its key and value parts)
  attention_merge,            // rw o, rw lse, o of more keys, lse -> o, lse
  pack_heads,                 // x -> y: the heads of each rank of the group in a block
  unpack_heads,               // x -> y: back; also columns that were computed block by block
  gelu_forward,               // x -> y
  gelu_backward,              // x, dy -> dx
  swiglu_forward,             // gate_up -> y
  swiglu_backward,            // gate_up, dy -> dgate_up
  add,                        // x, residual -> y
  bias_add,                   // x, bias, residual -> y, [mask] (with a mask: dropout of x + bias before the residual)
  bias_gradient,              // dy, rw dbias -> dbias
  dropout_forward,            // x -> y, mask
  dropout_backward,           // dy, mask -> dx
  dropout_mask,               // -> mask: drawn again
  // step
  zero_fill,    // -> x
  cast,         // x -> y
  copy,         // x -> y, from one memory to another; the stream says which
  quantize,     // x -> codes, scales
  dequantize,   // codes, scales -> y: of a sum's terms, their sum
  requantize,   // codes, scales (a sum's terms) -> codes, scales (of the sum)
  norm_squared, // x, rw sum -> sum (adds scale * sum of squares)
  adam,         // gradient, sum, rw master, rw m, rw v -> master, m, v, parameter
  // communication
  all_reduce,     // x -> x (in place)
  all_gather,     // x -> y
  reduce_scatter, // x -> y
  all_to_all,     // x -> y
  ring_shift,     // x -> y: the next member's y is this one's x
  send,           // x ->
  receive,        // -> y
  // order only: no work on the device
  wait
};

// The members of a collective: ranks that differ along `axes`; with `pipeline_ends` only those of the first and the
// last stage.
struct Group {
  AxisSet axes;
  bool pipeline_ends = false;
  friend auto operator<=>(Group const&, Group const&) = default;
};

// Ascending; a middle stage is no member of a group of the pipeline's ends.
std::vector<Rank> members_of(Plan const& plan, Rank rank, Group const& group);

// A one-way connection between the ranks of equal tp and dp index of two stages; transfers on it match in order.
struct Channel {
  enum class What : std::uint8_t { activation, gradient };
  What what = What::activation;
  Stage from;
  Stage to;
  friend auto operator<=>(Channel const&, Channel const&) = default;
};

// Part of the backward an op belongs to, for schedules that split it.
enum class Part : std::uint8_t { forward, input_gradient, weight_gradient, step };

struct Op {
  OpId id;
  OpKind kind = OpKind::wait;
  std::string name; // "qkv dX": for people and traces
  Part part = Part::forward;
  Stream stream = Stream::compute;
  std::vector<TensorId> reads;
  std::vector<TensorId> writes;

  std::int64_t sequence_length = 0; // attention, rope, positions: tokens of one sequence
  int context_shards = 1;           // the same: ranks that share them out
  int hop = -1;                     // attention: kv is the block of the rank so many places before; -1: of all ranks
  double scale = 1;                 // loss: 1 / tokens of the step; softmax: 1 / sqrt(d); norm_squared: 1 / ranks that
                                    // hold the same tensor
  bool transposed = false;          // linear_*: the weight is stored (out, in), not (in, out)
  int launches = 1;                 // kernels that the host issues for it
  // quantize, dequantize, requantize: bits of a code; equal blocks, each with groups of its own, in the codes that are
  // written (quantize) or read; quantize: x is so many rows of blocks, the codes hold it column by column.
  int bits = 0;
  int blocks = 1;
  int swizzle = 1;
  bool by_owner = false;       // all_gather: a broadcast of each member's part, one after the other
  bool portable = false;       // fused attention: without the instructions of newer chips
  bool triton = false;         // fused attention: by the Triton kernel of 2022
  bool core_attention = false; // dropped and rebuilt by selective recompute
  Group group;                 // collectives
  Channel channel;             // send, receive
  MicroBatch micro_batch;      // step-level ops on boundaries
  bool host_sync = false;      // the host issues nothing further until this op has ended
  // A layer's pass may run into the next one's (Domino): the ops from the first that is left over on are issued by the
  // next layer of the slot, in front of its op that takes over (or of its first), or at the slot's end (pieces_of).
  bool left_over = false;
  bool takes_over = false;

  // Ordering across streams: earlier ops of the same layer program and part, or of the same stage program. `entry`
  // stands for the compute op issued last before this layer program began.
  std::vector<OpId> waits;
  // Buffers whose last use this op is: their memory is free for what is issued after it; persistent ones lose content.
  std::vector<BufferRef> releases;
};
inline constexpr OpId entry{-1};

bool is_collective(OpKind kind);    // what a group does together
bool is_communication(OpKind kind); // collectives, send and receive
std::string_view to_string(OpKind kind);

// ------------------------------------------------------------------------------------------------------ layer programs

struct Parameter {
  std::string name;                     // "qkv weight"
  std::vector<std::int64_t> shape;      // on this rank
  std::vector<std::int64_t> full_shape; // of the model
  Placement placement{};
  Placement gradient_placement{}; // of the accumulated gradient
  bool tied = false;              // the one matrix that embedding and head share
  bool transposed = false;        // a matrix (in, out) that is stored (out, in)
  [[nodiscard]] std::int64_t elements() const {
    std::int64_t product = 1;
    for (std::int64_t size : shape)
      product *= size;
    return product;
  }
};

enum class LayerKind : std::uint8_t { embedding, block, head };

// A pass over layers: F, B, or what a schedule splits off from B.
enum class SlotKind : std::uint8_t {
  forward,
  backward,       // input gradients, and weight gradients too unless the plan's schedule splits them off
  weight_gradient // W
};
inline constexpr int slot_kind_count = 3;
inline constexpr std::array<SlotKind, slot_kind_count> slot_kinds{SlotKind::forward, SlotKind::backward,
                                                                  SlotKind::weight_gradient};
std::string_view to_string(SlotKind kind); // "forward"
char letter(SlotKind kind);                // 'F'

struct LayerProgram {
  std::string name; // "block", "block, full recompute"
  LayerKind kind = LayerKind::block;
  std::vector<Parameter> parameters;
  std::vector<Buffer> buffers;
  std::vector<Tensor> tensors;
  std::vector<Op> forward;
  std::vector<Op> backward;        // input and weight gradients, in issue order; each op's part says which
  std::vector<Op> weight_gradient; // of a split backward

  [[nodiscard]] Tensor const& operator[](TensorId id) const { return tensors[id.index()]; }
  [[nodiscard]] Tensor& operator[](TensorId id) { return tensors[id.index()]; }
};

std::vector<Op> const& ops_of(LayerProgram const& layer, SlotKind kind);
std::vector<Op>& ops_of(LayerProgram& layer, SlotKind kind);

// Where the host breaks off the ops of a layer's pass to issue what another layer has left over.
struct PassBreaks {
  std::size_t takes_over = 0; // the op in front of which the layer before is finished
  std::size_t left_over = 0;  // the first op that is left to the next layer; all of them: none
  std::size_t size = 0;
  [[nodiscard]] bool none() const { return takes_over == 0 && left_over == size; }
};
PassBreaks breaks_of(std::vector<Op> const& ops);

// ------------------------------------------------------------------------------------------------------ stage programs

// F, B or W of layers [first, last) of one chunk and one micro-batch, run on the layers' programs in the order of the pass
// (ascending for F, descending for B and W). A pass may cut a slot between layers to put step-level ops there.
struct Slot {
  OpId id; // what waits for it waits for its last compute op
  SlotKind kind = SlotKind::forward;
  Chunk chunk;
  MicroBatch micro_batch;
  int first = 0;
  int last = 0;
  friend bool operator==(Slot const&, Slot const&) = default;
};

// The i-th layer that a slot runs, from 0.
inline int layer_of(Slot const& slot, int i) {
  return slot.kind == SlotKind::forward ? slot.first + i : slot.last - 1 - i;
}

// Consecutive ops of a layer's pass, issued in a row.
struct LayerPiece {
  int layer = 0;
  std::size_t first = 0; // of the layer's ops
  std::size_t last = 0;
};

using Element = std::variant<Slot, Op>;

// Where a layer's parameter and its gradient lie in the flat buffers of the stage.
struct ParameterHome {
  BufferId parameters;
  BufferId gradients;
  std::int64_t offset = 0; // elements
};

struct StageLayer {
  int program = -1; // into Program::layer_programs; -1: not on this stage
  std::vector<ParameterHome> homes;
};

// A flat range of parameters that is reduced, sharded and updated as one.
struct Bucket {
  int lowest_layer = 0;  // its gradients are complete after this layer's backward
  int highest_layer = 0; // its parameters are first used by lowest_layer, last by this one
  Chunk chunk;
  BufferId parameters;
  BufferId gradients;
  std::int64_t elements = 0;        // with padding to a multiple of dp
  Placement placement;              // of the parameters along tp and pp (dp: replicated)
  Placement gradient_placement{};   // of the accumulated gradients
  bool whole_parameters = true;     // between uses; false: they are gathered for each (ZeRO-3)
  bool quantized_gradients = false; // on the wire (qgZ)
  // What the optimizer works on, set by the zero pass: the whole bucket or this rank's shard of it.
  std::int64_t shard_elements = 0;
  AxisSet sharded_over;      // empty: not sharded
  BufferId shard_parameters; // where the rank's part of the parameters outlives the step: `parameters`, or (ZeRO-3) a
                             // buffer of the shard alone
  BufferId shard_gradients;  // likewise of the accumulated gradients (ZeRO-2)
};

inline constexpr std::int32_t loss_buffer = 0; // in StageProgram::buffers: the step's loss, one fp32

struct StageProgram {
  Stage stage;
  std::vector<Element> elements; // in the order in which the host issues them
  std::vector<Buffer> buffers;
  std::vector<Tensor> tensors;
  std::vector<StageLayer> layers; // by LayerId: 0 embedding, 1..L blocks, L+1 head
  std::vector<LayerRange> chunks; // by Chunk
  std::vector<Bucket> buckets;
  std::vector<TensorId> initial; // tensors that hold values when a step begins, and must again when it ends
  std::vector<TensorId> results; // tensors that must hold values when a step ends: the loss
  std::int32_t next_op = 0;      // OpIds given out so far

  [[nodiscard]] Tensor const& operator[](TensorId id) const { return tensors[id.index()]; }
  [[nodiscard]] Tensor& operator[](TensorId id) { return tensors[id.index()]; }
};

struct Program {
  Model model;
  Plan plan;
  std::vector<LayerProgram> layer_programs;
  std::vector<StageProgram> stages; // by Stage
};

// Where the passes of every layer program break off, by layer program and kind of slot.
using BreaksOfLayers = std::vector<std::array<PassBreaks, slot_kind_count>>;
BreaksOfLayers breaks_of(Program const& program);
// What a slot issues, in order: its layers one after the other, but for what one leaves over for the next.
std::vector<LayerPiece> pieces_of(StageProgram const& stage, Slot const& slot, BreaksOfLayers const& breaks);

} // namespace foreplan

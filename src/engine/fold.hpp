// From a program and a cluster to what an engine runs, and back from its classes and uses to stages and ops.
#pragma once

#include "cluster/cluster.hpp"
#include "engine/folded_program.hpp"
#include "program/amounts.hpp"
#include "program/program.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace foreplan {

struct FoldOptions {
  bool unfold = false;      // simulate every rank
  bool segments = false;    // one item for each run of layers of a slot, instead of one for each kernel, where nothing
                            // that runs beside it asks for more (see Folder::contended_slots)
  bool interference = true; // without: SM and memory-bandwidth shares are nought
};

// What a block was made from: one pass of a layer program or a piece of it, a run of layers taken as one segment, or a
// step-level op.
struct BlockOrigin {
  LayerProgram const* layer_program = nullptr;
  SlotKind kind = SlotKind::forward;
  std::size_t first = 0; // op of the pass
  Op const* op = nullptr;
  // Of a segment: where its device time goes when nothing else runs.
  std::array<Seconds, 4> compute{}; // by KernelClass
  Seconds exposed_tp{};
  Seconds hidden_tp{};
  Seconds exposed_cp{};
  Seconds hidden_cp{};
};

// The op behind an item of a block that is no segment.
inline Op const& op_of(BlockOrigin const& origin, std::size_t item) {
  return origin.op != nullptr ? *origin.op : ops_of(*origin.layer_program, origin.kind)[origin.first + item];
}

// A use: an element of the stage program; in kernel form, one layer of a slot, or a piece of it.
struct UseOrigin {
  std::int32_t element = 0;
  std::int32_t layer = -1; // of a slot; for a segment its first layer in the order of execution
};

struct FoldedClass {
  Stage stage;
  Rank representative;
  std::int64_t ranks = 1;
  std::vector<UseOrigin> uses;
};

struct Folding {
  FoldedProgram program;
  std::vector<FoldedClass> classes;
  std::vector<BlockOrigin> blocks;
  bool segments = false;
};

// Pointers in the result point into `program`, which must outlive it.
Folding fold(Program const& program, Cluster const& cluster, FoldOptions options = {});

} // namespace foreplan

// Faults put into a program one at a time, to ask whether anybody notices. Generic: they are found by walking whatever
// program is given, so that a new strategy is covered by the plans that use it.
#pragma once

#include "program/program.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace foreplan {

struct Mutation {
  enum class Kind : std::uint8_t {
    // Something is missing.
    delete_wait,          // one wait of an op
    delete_communication, // a collective, send or receive
    delete_compute,       // an op that works on the device
    // Something comes too early.
    early_release, // a release at an op before the last user of the buffer
    // An amount is wrong.
    shift_tensor,        // a tensor one element further on in its buffer
    change_shard_stride, // shards of a rank's own not one shard apart
    change_group,        // another group for a collective
    change_collective,   // another collective
    change_scale,        // of a loss, softmax or norm
    change_wire_dtype,   // of a tensor that a collective reads or writes
    shift_parameter      // a parameter one element further forward in its flat buffer
  };
  Kind kind = Kind::delete_wait;
  // Where: a list of ops of a layer program, or of a stage program (then its elements).
  enum class List : std::uint8_t { forward, backward, weight_gradient, stage };
  List list = List::stage;
  std::int32_t owner = 0;        // layer program or stage
  std::int32_t index = 0;        // position in the list; shift_parameter: layer
  std::int32_t detail = 0;       // which wait or release; tensor; parameter
  std::int32_t target = 0;       // early_release: position to move to
  Group group;                   // change_group
  OpKind op_kind = OpKind::wait; // change_collective
  double factor = 1;             // change_scale
  std::string name;              // "block, forward: delete reduce middle"
};
inline constexpr int mutation_kind_count = 11;
std::string_view to_string(Mutation::Kind kind);

// Every fault of these kinds that changes what the program means, in layer programs that some stage uses and in stage
// programs. Left out: what is another way to write the same thing (a group of the same ranks, a shift into padding).
std::vector<Mutation> mutations(Program const& program);
std::vector<Mutation> mutations(Program const& program, Mutation::Kind kind);

// Whether the op of a deletion or wait writes what nobody reads: work that trainers do all the same. Recomputation runs a
// checkpointed function to its end, the last op included.
bool is_dead_work(Program const& program, Mutation const& mutation);

// The program with that fault.
Program apply(Program program, Mutation const& mutation);

} // namespace foreplan

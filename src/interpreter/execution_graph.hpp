// What must have ended before what, over the instances of all ranks, and legal orders of running them one at a time.
#pragma once

#include "interpreter/storage.hpp"
#include "program/program.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace foreplan {

// A legal order: which of the nodes that may start runs next.
struct Order {
  enum class Kind : std::uint8_t {
    program,      // the earliest in its rank's issue order
    latest_first, // the latest in its rank's issue order: readers run before the writers they forgot to wait for, and
                  // writers before earlier readers
    delayed, // an op of `stream` on the ranks of `stage` runs only when nothing else can: whatever forgot to wait for
             // one runs before it if that is possible at all. At random otherwise
    random   // any
  };
  Kind kind = Kind::program;
  std::uint64_t seed = 0;
  Stage stage{};
  Stream stream = Stream::compute;
};
std::string to_string(Order const& order);

// Latest first; then each (stage, stream) that has ops delayed, compute streams first; then random orders of different
// seeds.
std::vector<Order> adversarial_orders(Program const& program, std::vector<StageStorage> const& stages, int count);

// A node is one instance, or the instances of all members of a collective, or a send with its receive: these start
// together, when every member has reached them. The k-th collective of a communicator on each member belongs to one
// node; the k-th send on a channel belongs to the k-th receive.
struct ExecutionGraph {
  struct Member {
    std::int32_t rank = 0;
    std::int32_t instance = 0; // position in the issue order of its stage
  };
  std::vector<Member> members;                 // node by node, in the order of the group; a send before its receive
  std::vector<std::int32_t> first_member;      // by node, and the end
  std::vector<std::int32_t> successors;        // node by node
  std::vector<std::int32_t> first_successor;   // by node, and the end
  std::vector<std::int32_t> predecessor_count; // by node; one more for a node whose members do not all exist

  [[nodiscard]] std::size_t size() const { return predecessor_count.size(); }
  [[nodiscard]] std::span<Member const> members_of(std::size_t node) const {
    auto const first = static_cast<std::size_t>(first_member[node]);
    return {members.data() + first, static_cast<std::size_t>(first_member[node + 1]) - first};
  }
};

// An instance follows the one before it on its stream, what it waits for, and the last host_sync op issued before it.
ExecutionGraph make_execution_graph(Program const& program, std::vector<StageStorage> const& stages);

// Calls run(node) for every node in the order given. Throws std::runtime_error, with the first op of every stuck stream,
// when some can never start.
void execute(Program const& program, std::vector<StageStorage> const& stages, ExecutionGraph const& graph,
             Order const& order, std::function<void(std::size_t)> const& run);

} // namespace foreplan

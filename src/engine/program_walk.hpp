// The part of an engine that shares no resources: streams in order, waits, the host's issue, rendezvous of a transfer's
// members, timeline. An engine asks it what starts, makes time of that, and tells it what has ended.
//
// Items are never listed: each stream has a cursor (use, item). Streams run in order, so "item x has ended" is the
// comparison of two whole numbers: items of its stream ended >= its ordinal on that stream.
#pragma once

#include "engine/engine.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace foreplan {

// What an engine has to do next.
struct Action {
  enum class Kind : std::uint8_t {
    start_compute,  // the head of (index = class, stream)
    start_transfer, // of communicator `index`
    wake            // call issued(class, stream) at `time`
  };
  Kind kind = Kind::start_compute;
  std::uint8_t stream = 0;
  std::int32_t index = 0;
  double time = 0;
};

// A communicator's member and the one stream on which it enters it.
struct Member {
  std::int32_t rank_class = 0;
  std::uint8_t stream = 0;
};

class ProgramWalk {
public:
  // Throws std::invalid_argument for a malformed program. `program` must outlive the walk.
  ProgramWalk(FoldedProgram const& program, RunOptions options);

  // Actions are appended by the functions below; the engine takes them away.
  std::vector<Action> actions;

  void begin();
  void issued(int rank_class, int stream, double now);
  void compute_ended(int rank_class, int stream, double now) { ended(rank_class, stream, now); }
  void transfer_ended(int communicator, double now);

  // Of the item at the head of a stream.
  [[nodiscard]] Demand const& demand(int rank_class, int stream) const;
  [[nodiscard]] std::span<Member const> members(int communicator) const;
  // Its phases: those of the communicator's first member.
  [[nodiscard]] TransferDemand const& transfer(int communicator) const;

  // The timeline when nothing runs any more; throws if items are left.
  Timeline finish();

private:
  // An earlier item of the same class has ended once `count` items of `stream` have, beyond those before the use.
  struct Wait {
    std::int32_t stream = 0;
    std::int32_t count = 0;
  };
  struct BlockItem {
    double ready = 0; // from the begin of the use's issue to the earliest start
    std::int32_t demand = 0;
    std::int32_t communicator = -1;
    std::int32_t next = -1; // of the same stream and block, into items_
    std::int32_t first_wait = 0;
    std::int32_t wait_count = 0;
    std::uint8_t stream = 0;
    bool host_sync = false;
  };
  struct BlockTable {
    double issue = 0; // host seconds of all items
    std::int32_t first_item = 0;
    std::uint32_t streams = 0; // bit s: has items of stream s
    std::uint8_t last_stream = 0;
    bool host_sync = false;
    std::array<std::int32_t, stream_limit> first{}; // item of a stream, into items_
    std::array<std::int32_t, stream_limit> count{};
  };
  struct Head {
    std::int32_t use = 0;
    std::int32_t item = -1;  // into items_; -1: the stream is at its end
    std::int32_t needed = 0; // items that must have ended on the stream it is blocked on
    double arrival = 0;
    double start = 0;
  };
  struct ClassState {
    std::array<Head, stream_limit> heads{};
    std::array<std::int32_t, stream_limit> ended{};       // items, by stream
    std::array<std::uint32_t, stream_limit> blocked_on{}; // streams whose head waits for an item of this one
    std::uint32_t waiting_for_host = 0;
    std::vector<std::int32_t> before; // [use][stream]: items issued before the use; one row beyond the last use
    std::vector<double> issue_begin;  // of the uses as far as known
    std::vector<TimelineEntry> entries;
  };
  struct CommunicatorState {
    std::int32_t first_member = 0; // into members_
    std::int32_t member_count = 0;
    std::int32_t arrived = 0;
  };

  void read_block(Block const& block);
  void read_class(int rank_class);
  void find_members();
  void to_next_item(int rank_class, int stream);
  void to_use(int rank_class, int stream, std::int32_t use);
  bool blocked(ClassState& state, RankClass const& rank_class, int stream);
  void examine(int rank_class, int stream, double now);
  void ask_host(int rank_class, int stream, double now);
  void arrive(int rank_class, int stream, double now);
  void ended(int rank_class, int stream, double now);
  bool issue_known(ClassState& state, RankClass const& rank_class, std::int32_t use) const;
  [[nodiscard]] std::string stuck() const;

  FoldedProgram const& program_;
  RunOptions options_;
  std::vector<BlockTable> blocks_;
  std::vector<BlockItem> items_;
  std::vector<Wait> waits_;
  std::vector<Member> members_;
  std::vector<CommunicatorState> communicators_;
  std::vector<ClassState> classes_;
  std::int64_t items_ended_ = 0;
  double last_end_ = 0;
};

// Throws std::invalid_argument, naming the place, unless all indices, streams, amounts and rules of
// folded_program.hpp are right.
void check(FoldedProgram const& program);

} // namespace foreplan

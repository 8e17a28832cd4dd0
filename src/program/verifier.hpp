// Proof that a program is well formed, without running it: no races, no missing communication, no use of memory that is
// not there.
//
// Per rank (all ranks of a stage run one program; their shards differ, so the first and the last rank are both checked):
//  order     every read after write, write after read and write after write on a buffer, and every transfer after the one
//            before it on its communicator and on its stream (ranks with several communicators in common enter them in
//            one order, or may wait in a circle), is ordered by streams, waits and host syncs; everything precedes the
//            step's end; and a stage's passes over its layers follow each other, as its schedule says
//  pool      the first use of each life of a temporary follows all releases issued before it; a release follows all uses
//  content   every read finds what it expects written there: something, of its dtype and placement
//  rules     every op's written placements follow from what it reads (placement_rules.hpp); sizes and scales fit the group
// Across ranks: members of a communicator enter the same transfers in the same order, and nobody waits in a circle.
#pragma once

#include "program/instances.hpp"
#include "program/stream_order.hpp"

#include <string>
#include <vector>

namespace foreplan {

struct Finding {
  Stage stage;
  std::string text;
};

// The coordinates to look at: the first rank of the stage, and the last if there are more.
std::vector<Coordinate> corner_ranks(Plan const& plan, Stage stage);

// Empty: proved. At most `limit` findings of each sort and stage.
std::vector<Finding> verify(Program const& program, std::size_t limit = 4);

// The order part of the proof for one stage, fit to be asked "and without this edge?" many times.
class StageOrder {
public:
  // As the rank at `at` runs it.
  StageOrder(Program const& program, StageProgram const& stage, Coordinate const& at);

  // An edge of the happens-before relation, taken away.
  struct Deletion {
    enum class What { nothing, wait, stream_edge, host_sync };
    What what = What::nothing;
    std::int32_t instance = -1; // whose wait, whose edge from its stream's predecessor, or which host sync
    std::size_t wait = 0;       // which of its waits
  };
  // Every edge there is.
  [[nodiscard]] std::vector<Deletion> edges() const;

  // Rejected: some rule of `order` or `pool` is broken without the edge. Implied: none is, and the two ops are ordered
  // all the same. Neither: the proof would miss it.
  enum class Verdict { rejected, implied, neither };
  [[nodiscard]] Verdict without(Deletion const& deletion) const;

  // What is broken in the program as it is; at most `limit`.
  [[nodiscard]] std::vector<std::string> findings(std::size_t limit) const;

  [[nodiscard]] std::vector<Instance> const& instances() const { return instances_; }

private:
  static constexpr std::size_t chains = stream_count + 1; // one more for the part of a stream behind a deleted edge
  using Clock = VectorClock<chains>;
  struct Pair {
    std::int32_t earlier;
    std::int32_t later;
  };
  struct Placed {
    std::size_t chain;
    std::int32_t tick;
    Clock clock;
  };

  void collect_pairs(Program const& program, StageProgram const& stage, Coordinate const& at);
  [[nodiscard]] std::vector<Placed> clocks(Deletion const& deletion) const;
  [[nodiscard]] bool ordered(std::vector<Placed> const& placed, std::int32_t earlier, std::int32_t later) const;
  // Calls report(earlier, later, rule) for what is not ordered as it must be, until it returns false.
  template <class Report>
  void check(std::vector<Placed> const& placed, Report report) const;

  std::vector<Instance> instances_;
  std::vector<std::int32_t> before_; // predecessor on its stream, or -1
  std::vector<Pair> pairs_;          // must be ordered
  std::vector<bool> first_use_;      // of a temporary
  std::vector<bool> releases_;       // temporaries: their memory serves others
};

} // namespace foreplan

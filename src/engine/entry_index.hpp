// The entries of a class's timeline, made findable: by use and item, by stream, by communicator, with the host's times.
#pragma once

#include "engine/folded_program.hpp"
#include "timeline/timeline.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <vector>

namespace foreplan {

struct EntryIndex {
  std::vector<std::int32_t> first_of_use;                        // into `of_item`
  std::vector<std::int32_t> of_item;                             // by first_of_use[use] + item: position of its entry
  std::array<std::vector<std::int32_t>, stream_limit> on_stream; // entries in the order of the stream
  std::vector<std::int32_t> place;                               // by entry: its position on its stream
  std::map<std::int32_t, std::vector<std::int32_t>> on_communicator; // by communicator: entries in order
  std::vector<std::int32_t> turn;           // by entry of a transfer: its position on its communicator
  std::vector<double> issue_begin;          // by use: when the host began to issue it
  std::vector<std::int32_t> host_sync;      // by use: the last use before it after which the host waits; -1: none
  std::vector<std::int32_t> compute_before; // by use: compute items issued before it

  [[nodiscard]] std::int32_t entry_of(std::int32_t use, std::int32_t item) const {
    std::int32_t const position = first_of_use[static_cast<std::size_t>(use)] + item;
    return of_item[static_cast<std::size_t>(position)];
  }
};

EntryIndex index_entries(FoldedProgram const& program, RankClass const& rank_class,
                         std::vector<TimelineEntry> const& entries);

Item const& item_of(FoldedProgram const& program, RankClass const& rank_class, TimelineEntry const& entry);

// The host's time for it: begin of its issue, end of its issue, and from when on its device may start it.
struct HostTimes {
  double begin = 0;
  double end = 0;
  double ready = 0;
};
HostTimes host_times(FoldedProgram const& program, RankClass const& rank_class, EntryIndex const& index,
                     TimelineEntry const& entry);

} // namespace foreplan

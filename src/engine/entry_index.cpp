#include "engine/entry_index.hpp"

#include <algorithm>

namespace foreplan {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

Block const& block_of(FoldedProgram const& program, RankClass const& rank_class, std::size_t use) {
  return program.blocks[at(rank_class.uses[use].block)];
}

void number_items(FoldedProgram const& program, RankClass const& rank_class, EntryIndex& index) {
  std::int32_t items = 0, compute = 0;
  for (std::size_t u = 0; u < rank_class.uses.size(); ++u) {
    index.first_of_use.push_back(items);
    index.compute_before.push_back(compute);
    for (Item const& item : block_of(program, rank_class, u).items) {
      ++items;
      compute += item.stream == compute_stream ? 1 : 0;
    }
  }
  index.of_item.assign(at(items), -1);
}

void find_entries(FoldedProgram const& program, RankClass const& rank_class, std::vector<TimelineEntry> const& entries,
                  EntryIndex& index) {
  index.place.resize(entries.size());
  index.turn.assign(entries.size(), -1);
  for (std::size_t e = 0; e < entries.size(); ++e) {
    auto const number = static_cast<std::int32_t>(e);
    Item const& item = item_of(program, rank_class, entries[e]);
    index.of_item[at(index.first_of_use[at(entries[e].use)] + entries[e].item)] = number;
    index.place[e] = static_cast<std::int32_t>(index.on_stream[item.stream].size());
    index.on_stream[item.stream].push_back(number);
    if (item.communicator >= 0) {
      std::vector<std::int32_t>& transfers = index.on_communicator[item.communicator];
      index.turn[e] = static_cast<std::int32_t>(transfers.size());
      transfers.push_back(number);
    }
  }
}

void follow_host(FoldedProgram const& program, RankClass const& rank_class, std::vector<TimelineEntry> const& entries,
                 EntryIndex& index) {
  double now = 0;
  std::int32_t synced = -1;
  for (std::size_t u = 0; u < rank_class.uses.size(); ++u) {
    index.issue_begin.push_back(now);
    index.host_sync.push_back(synced);
    std::vector<Item> const& items = block_of(program, rank_class, u).items;
    for (Item const& item : items)
      now += program.demands[at(item.demand)].issue.value();
    if (!items.empty() && items.back().host_sync) {
      synced = static_cast<std::int32_t>(u);
      now = std::max(now, entries[at(index.entry_of(synced, 0))].end);
    }
  }
}

} // namespace

Item const& item_of(FoldedProgram const& program, RankClass const& rank_class, TimelineEntry const& entry) {
  return block_of(program, rank_class, at(entry.use)).items[at(entry.item)];
}

EntryIndex index_entries(FoldedProgram const& program, RankClass const& rank_class,
                         std::vector<TimelineEntry> const& entries) {
  EntryIndex index;
  number_items(program, rank_class, index);
  find_entries(program, rank_class, entries, index);
  follow_host(program, rank_class, entries, index);
  return index;
}

HostTimes host_times(FoldedProgram const& program, RankClass const& rank_class, EntryIndex const& index,
                     TimelineEntry const& entry) {
  std::vector<Item> const& items = block_of(program, rank_class, at(entry.use)).items;
  double begin = index.issue_begin[at(entry.use)];
  for (std::int32_t i = 0; i < entry.item; ++i)
    begin += program.demands[at(items[at(i)].demand)].issue.value();
  Demand const& demand = program.demands[at(items[at(entry.item)].demand)];
  return {begin, begin + demand.issue.value(), begin + demand.lead.value()};
}

} // namespace foreplan

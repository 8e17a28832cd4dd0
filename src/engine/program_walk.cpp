#include "engine/program_walk.hpp"

#include "engine/interference.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>
#include <utility>

namespace foreplan {

namespace {
std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
} // namespace

ProgramWalk::ProgramWalk(FoldedProgram const& program, RunOptions options) : program_(program), options_(options) {
  check(program);
  blocks_.reserve(program.blocks.size());
  for (Block const& block : program.blocks)
    read_block(block);
  classes_.resize(program.classes.size());
  for (std::size_t c = 0; c < program.classes.size(); ++c)
    read_class(static_cast<int>(c));
  find_members();
}

void ProgramWalk::read_block(Block const& block) {
  BlockTable table;
  table.first_item = static_cast<std::int32_t>(items_.size());
  std::array<std::int32_t, stream_limit> last{};
  std::vector<std::int32_t> ordinal; // of the block's items on their streams, from 1
  for (Item const& item : block.items) {
    Demand const& demand = program_.demands[at(item.demand)];
    BlockItem entry{.ready = table.issue + demand.lead.value(),
                    .demand = item.demand,
                    .communicator = item.communicator,
                    .first_wait = static_cast<std::int32_t>(waits_.size()),
                    .stream = item.stream,
                    .host_sync = item.host_sync};
    std::array<std::int32_t, stream_limit> needed{}; // items of other streams, the last of each is enough
    needed.fill(-1);
    for (std::int32_t wait : item.waits) {
      std::size_t const stream = wait < 0 ? at(wait_for_entry - wait) : block.items[at(wait)].stream;
      needed[stream] = std::max(needed[stream], wait < 0 ? 0 : ordinal[at(wait)]);
    }
    for (std::int32_t s = 0; s < stream_limit; ++s)
      if (s != item.stream && needed[at(s)] >= 0) // its own stream is in order
        waits_.push_back({s, needed[at(s)]});
    entry.wait_count = static_cast<std::int32_t>(waits_.size()) - entry.first_wait;

    auto const position = static_cast<std::int32_t>(items_.size());
    if ((table.streams & stream_bit(item.stream)) == 0)
      table.first[item.stream] = position;
    else
      items_[at(last[item.stream])].next = position;
    last[item.stream] = position;
    ordinal.push_back(++table.count[item.stream]);
    table.streams |= stream_bit(item.stream);
    table.last_stream = item.stream;
    table.issue += demand.issue.value();
    table.host_sync = item.host_sync;
    items_.push_back(entry);
  }
  blocks_.push_back(table);
}

void ProgramWalk::read_class(int rank_class) {
  ClassState& state = classes_[at(rank_class)];
  auto const& uses = program_.classes[at(rank_class)].uses;
  state.before.resize((uses.size() + 1) * stream_limit);
  std::int32_t* row = state.before.data();
  std::size_t items = 0;
  for (Use const& use : uses) {
    BlockTable const& block = blocks_[at(use.block)];
    for (int s = 0; s < stream_limit; ++s)
      row[s + stream_limit] = row[s] + block.count[at(s)];
    row += stream_limit;
    items += program_.blocks[at(use.block)].items.size();
  }
  state.issue_begin.reserve(uses.size() + 1);
  state.issue_begin.push_back(0);
  if (options_.keep_entries)
    state.entries.reserve(items);
  for (int s = 0; s < stream_limit; ++s)
    to_use(rank_class, s, 0);
}

// A class must enter a communicator on one stream only: then the k-th item to come is the k-th issued.
void ProgramWalk::find_members() {
  for (Communicator const& communicator : program_.communicators) {
    communicators_.push_back(
        {static_cast<std::int32_t>(members_.size()), static_cast<std::int32_t>(communicator.members.size()), 0});
    for (std::int32_t member : communicator.members)
      members_.push_back({member, stream_limit});
  }
  std::vector<std::int32_t> visited(blocks_.size(), -1); // by block: the last class that was seen to use it
  for (std::int32_t c = 0; c < static_cast<std::int32_t>(classes_.size()); ++c)
    for (Use const& use : program_.classes[at(c)].uses) {
      if (std::exchange(visited[at(use.block)], c) == c)
        continue;
      for (Item const& item : program_.blocks[at(use.block)].items) {
        if (item.communicator < 0)
          continue;
        CommunicatorState const& communicator = communicators_[at(item.communicator)];
        auto const begin = members_.begin() + communicator.first_member;
        auto const end = begin + communicator.member_count;
        auto const member = std::find_if(begin, end, [&](Member const& m) { return m.rank_class == c; });
        auto const& name = program_.communicators[at(item.communicator)].name;
        if (member == end)
          throw std::invalid_argument(fmt::format("folded program: class '{}' uses communicator '{}' and is no member",
                                                  program_.classes[at(c)].name, name));
        if (member->stream != stream_limit && member->stream != item.stream)
          throw std::invalid_argument(fmt::format("folded program: class '{}' enters communicator '{}' on two streams",
                                                  program_.classes[at(c)].name, name));
        member->stream = item.stream;
      }
    }
}

Demand const& ProgramWalk::demand(int rank_class, int stream) const {
  std::int32_t const item = classes_[at(rank_class)].heads[at(stream)].item;
  return program_.demands[at(items_[at(item)].demand)];
}

std::span<Member const> ProgramWalk::members(int communicator) const {
  CommunicatorState const& state = communicators_[at(communicator)];
  return {members_.data() + state.first_member, at(state.member_count)};
}

TransferDemand const& ProgramWalk::transfer(int communicator) const {
  Member const& first = members_[at(communicators_[at(communicator)].first_member)];
  return std::get<TransferDemand>(demand(first.rank_class, first.stream).device);
}

void ProgramWalk::begin() {
  for (std::size_t c = 0; c < classes_.size(); ++c)
    for (int s = 0; s < stream_limit; ++s)
      examine(static_cast<int>(c), s, 0);
}

// Places the stream's cursor on its first item at or after `use`.
void ProgramWalk::to_use(int rank_class, int stream, std::int32_t use) {
  Head& head = classes_[at(rank_class)].heads[at(stream)];
  auto const& uses = program_.classes[at(rank_class)].uses;
  auto const end = static_cast<std::int32_t>(uses.size());
  while (use < end && (blocks_[at(uses[at(use)].block)].streams & stream_bit(stream)) == 0)
    ++use;
  head.use = use;
  head.item = use < end ? blocks_[at(uses[at(use)].block)].first[at(stream)] : -1;
}

void ProgramWalk::to_next_item(int rank_class, int stream) {
  Head& head = classes_[at(rank_class)].heads[at(stream)];
  std::int32_t const next = items_[at(head.item)].next;
  if (next >= 0)
    head.item = next;
  else
    to_use(rank_class, stream, head.use + 1);
}

// Whether the head waits for an item that has not ended; the stream of that item then remembers whom to wake.
bool ProgramWalk::blocked(ClassState& state, RankClass const& rank_class, int stream) {
  Head& head = state.heads[at(stream)];
  auto const must_wait = [&](std::int32_t target, std::int32_t needed) {
    if (state.ended[at(target)] >= needed)
      return false;
    head.needed = needed;
    state.blocked_on[at(target)] |= stream_bit(stream);
    return true;
  };
  BlockItem const& item = items_[at(head.item)];
  std::int32_t const* before = state.before.data() + at(head.use) * stream_limit;
  for (std::int32_t w = item.first_wait; w < item.first_wait + item.wait_count; ++w)
    if (must_wait(waits_[at(w)].stream, before[waits_[at(w)].stream] + waits_[at(w)].count))
      return true;
  Use const& use = rank_class.uses[at(head.use)];
  for (std::int32_t w = use.first_wait; w < use.first_wait + use.wait_count; ++w) {
    std::int32_t const target = rank_class.waits[at(w)];
    std::int32_t const last_stream = blocks_[at(rank_class.uses[at(target)].block)].last_stream;
    if (must_wait(last_stream, state.before[at(target + 1) * stream_limit + at(last_stream)]))
      return true;
  }
  return false;
}

// Looks at a head whose stream has become free, or whose wait may be over.
void ProgramWalk::examine(int rank_class, int stream, double now) {
  ClassState& state = classes_[at(rank_class)];
  Head& head = state.heads[at(stream)];
  if (head.item < 0 || blocked(state, program_.classes[at(rank_class)], stream))
    return;
  head.arrival = now;
  ask_host(rank_class, stream, now);
}

// Extends the known begins of issue up to the use; false if the host waits in between for a sync item to end.
bool ProgramWalk::issue_known(ClassState& state, RankClass const& rank_class, std::int32_t use) const {
  auto& begin = state.issue_begin;
  while (begin.size() <= at(use)) {
    BlockTable const& block = blocks_[at(rank_class.uses[begin.size() - 1].block)];
    if (block.host_sync)
      return false;
    begin.push_back(begin.back() + block.issue);
  }
  return true;
}

void ProgramWalk::ask_host(int rank_class, int stream, double now) {
  ClassState& state = classes_[at(rank_class)];
  Head const& head = state.heads[at(stream)];
  if (!issue_known(state, program_.classes[at(rank_class)], head.use)) {
    state.waiting_for_host |= stream_bit(stream);
    return;
  }
  double const ready = state.issue_begin[at(head.use)] + items_[at(head.item)].ready;
  if (ready > now)
    actions.push_back({Action::Kind::wake, static_cast<std::uint8_t>(stream), rank_class, ready});
  else
    arrive(rank_class, stream, now);
}

void ProgramWalk::issued(int rank_class, int stream, double now) { arrive(rank_class, stream, now); }

void ProgramWalk::arrive(int rank_class, int stream, double now) {
  Head& head = classes_[at(rank_class)].heads[at(stream)];
  std::int32_t const communicator = items_[at(head.item)].communicator;
  if (communicator < 0) {
    head.start = now;
    actions.push_back({Action::Kind::start_compute, static_cast<std::uint8_t>(stream), rank_class, now});
    return;
  }
  CommunicatorState& state = communicators_[at(communicator)];
  if (++state.arrived < state.member_count)
    return;
  state.arrived = 0;
  for (Member const& member : members(communicator))
    classes_[at(member.rank_class)].heads[member.stream].start = now;
  actions.push_back({Action::Kind::start_transfer, 0, communicator, now});
}

void ProgramWalk::transfer_ended(int communicator, double now) {
  for (Member const& member : members(communicator))
    ended(member.rank_class, member.stream, now);
}

void ProgramWalk::ended(int rank_class, int stream, double now) {
  ClassState& state = classes_[at(rank_class)];
  Head const& head = state.heads[at(stream)];
  std::int32_t const use = head.use;
  BlockTable const& block = blocks_[at(program_.classes[at(rank_class)].uses[at(use)].block)];
  if (options_.keep_entries)
    state.entries.push_back({use, head.item - block.first_item, head.arrival, head.start, now});
  ++items_ended_;
  last_end_ = now;
  std::int32_t const count = ++state.ended[at(stream)];
  to_next_item(rank_class, stream);

  if (block.host_sync) {
    state.issue_begin.push_back(std::max(state.issue_begin.back() + block.issue, now));
    for_each_stream(std::exchange(state.waiting_for_host, 0), [&](int s) { ask_host(rank_class, s, now); });
  }
  for_each_stream(state.blocked_on[at(stream)], [&](int s) {
    if (count < state.heads[at(s)].needed)
      return;
    state.blocked_on[at(stream)] &= ~stream_bit(s);
    examine(rank_class, s, now);
  });
  examine(rank_class, stream, now);
}

std::string ProgramWalk::stuck() const {
  std::string text;
  for (std::size_t c = 0; c < classes_.size(); ++c)
    for (int s = 0; s < stream_limit; ++s) {
      Head const& head = classes_[c].heads[at(s)];
      if (head.item < 0)
        continue;
      RankClass const& rank_class = program_.classes[c];
      BlockTable const& block = blocks_[at(rank_class.uses[at(head.use)].block)];
      std::int32_t const communicator = items_[at(head.item)].communicator;
      text += fmt::format("\n  class '{}' stream {}: use {} item {}", rank_class.name, s, head.use,
                          head.item - block.first_item);
      if (communicator >= 0)
        text += fmt::format(" (communicator '{}')", program_.communicators[at(communicator)].name);
    }
  return text;
}

Timeline ProgramWalk::finish() {
  if (std::string const text = stuck(); !text.empty())
    throw std::runtime_error("deadlock: these items wait for each other" + text);
  Timeline timeline;
  for (ClassState& state : classes_)
    timeline.classes.push_back(std::move(state.entries));
  timeline.step = Seconds(last_end_);
  timeline.items = items_ended_;
  return timeline;
}

} // namespace foreplan

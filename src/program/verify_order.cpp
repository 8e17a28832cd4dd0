// The order and pool rules of the verifier.
#include "program/verifier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

namespace foreplan {

namespace {

struct Use {
  std::int64_t begin, end;
  std::int32_t instance;
  bool write;
};

// A communicator as one rank sees it: its transfers must be totally ordered. A group has one for each stream.
using CommunicatorKey = std::tuple<Group, Stream, Channel>;

CommunicatorKey communicator_of(Op const& op) {
  if (is_collective(op.kind))
    return {op.group, op.stream, {}};
  return {{}, Stream::compute, op.channel};
}

bool is_same_pass(Instance const& a, Instance const& b) {
  return a.layer == b.layer && a.micro_batch == b.micro_batch && a.op->part == b.op->part;
}

std::string name_of(Instance const& instance) {
  std::string text = instance.op->name;
  if (instance.layer >= 0)
    text += fmt::format(" of layer {}", instance.layer);
  if (instance.layer >= 0 || is_communication(instance.op->kind))
    text += fmt::format(", micro-batch {}", instance.micro_batch.value());
  return text;
}

} // namespace

StageOrder::StageOrder(Program const& program, StageProgram const& stage, Coordinate const& at)
    : instances_(instances_of(program, stage)), before_(instances_.size(), -1), first_use_(instances_.size(), false),
      releases_(instances_.size(), false) {
  std::array<std::int32_t, stream_count> tail{};
  tail.fill(-1);
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    auto& last = tail[static_cast<std::size_t>(instances_[i].op->stream)];
    before_[i] = last;
    last = static_cast<std::int32_t>(i);
  }
  collect_pairs(program, stage, at);
}

void StageOrder::collect_pairs(Program const& program, StageProgram const& stage, Coordinate const& at) {
  std::unordered_map<BufferKey, std::vector<Use>, BufferKeyHash> uses;
  std::unordered_set<BufferKey, BufferKeyHash> released; // and not in use again
  std::map<CommunicatorKey, std::int32_t> last_transfer;
  std::map<Stream, std::int32_t> last_on_stream;
  std::int32_t last_of_pass = -1; // the last compute op of a layer
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    Instance const& instance = instances_[i];
    auto const self = static_cast<std::int32_t>(i);
    auto touch = [&](BufferKey const& key, std::int64_t begin, std::int64_t end, bool write) {
      auto& list = uses[key];
      bool const lives_again = released.erase(key) > 0;
      if ((list.empty() || lives_again) && !buffer_of(program, stage, key).persistent)
        first_use_[i] = true;
      for (Use const& use : list)
        if (use.begin < end && begin < use.end && (write || use.write) && use.instance != self)
          pairs_.push_back({use.instance, self});
      if (write)
        std::erase_if(list, [&](Use const& use) { return begin <= use.begin && use.end <= end; });
      list.push_back({begin, end, self, write});
    };
    for (TensorId id : instance.op->reads) {
      Access const access = resolve(program, stage, instance, tensor_of(stage, instance, id), at);
      touch(access.key, access.begin, access.end, false);
    }
    for (TensorId id : instance.op->writes) {
      Access const access = resolve(program, stage, instance, tensor_of(stage, instance, id), at);
      touch(access.key, access.begin, access.end, true);
    }
    for (BufferRef buffer : instance.op->releases) {
      BufferKey const key = resolve(program, stage, instance, buffer);
      touch(key, 0, INT64_MAX, true);
      released.insert(key);
      if (!buffer_of(program, stage, key).persistent)
        releases_[i] = true;
    }
    if (instance.layer >= 0 && instance.op->stream == Stream::compute) {
      if (last_of_pass >= 0 && !is_same_pass(instances_[static_cast<std::size_t>(last_of_pass)], instance))
        pairs_.push_back({last_of_pass, self});
      last_of_pass = self;
    }
    if (is_communication(instance.op->kind)) {
      auto follow = [&](auto& last_transfers, auto const& key) {
        auto const [last, is_first] = last_transfers.try_emplace(key, self);
        if (!is_first)
          pairs_.push_back({last->second, self});
        last->second = self;
      };
      follow(last_transfer, communicator_of(*instance.op));
      follow(last_on_stream, instance.op->stream);
    }
  }
}

std::vector<StageOrder::Placed> StageOrder::clocks(Deletion const& deletion) const {
  using What = Deletion::What;
  std::vector<Placed> placed(instances_.size());
  std::array<std::int32_t, chains> count{};
  Clock host; // what the host has waited for
  std::size_t split_stream = chains;
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    Instance const& instance = instances_[i];
    auto const self = static_cast<std::int32_t>(i);
    auto const stream = static_cast<std::size_t>(instance.op->stream);
    bool const loses_edge = deletion.what == What::stream_edge && deletion.instance == self;
    if (loses_edge)
      split_stream = stream;
    Placed& here = placed[i];
    here.chain = stream == split_stream ? chains - 1 : stream;
    here.tick = ++count[here.chain];
    here.clock = host;
    if (before_[i] >= 0 && !loses_edge)
      here.clock.merge(placed[static_cast<std::size_t>(before_[i])].clock);
    for (std::size_t w = 0; w < instance.waits.size(); ++w)
      if (!(deletion.what == What::wait && deletion.instance == self && deletion.wait == w))
        here.clock.merge(placed[static_cast<std::size_t>(instance.waits[w])].clock);
    here.clock.ended[here.chain] = std::max(here.clock.ended[here.chain], here.tick);
    if (instance.op->host_sync && !(deletion.what == What::host_sync && deletion.instance == self))
      host.merge(here.clock);
  }
  return placed;
}

bool StageOrder::ordered(std::vector<Placed> const& placed, std::int32_t earlier, std::int32_t later) const {
  Placed const& a = placed[static_cast<std::size_t>(earlier)];
  return placed[static_cast<std::size_t>(later)].clock.covers(a.chain, a.tick);
}

template <class Report>
void StageOrder::check(std::vector<Placed> const& placed, Report report) const {
  for (Pair const& pair : pairs_)
    if (!ordered(placed, pair.earlier, pair.later) && !report(pair.earlier, pair.later, "is not ordered after"))
      return;
  Clock released; // everything that has released memory so far
  std::int32_t last_release = -1;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    auto const self = static_cast<std::int32_t>(i);
    if (first_use_[i] && !placed[i].clock.covers(released) &&
        !report(last_release, self, "may use memory before its release by"))
      return;
    if (releases_[i]) {
      released.merge(placed[i].clock);
      last_release = self;
    }
  }
  auto const end = static_cast<std::int32_t>(placed.size()) - 1;
  for (std::int32_t i = 0; i < end; ++i)
    if (!ordered(placed, i, end) && !report(i, end, "does not wait for"))
      return;
}

std::vector<StageOrder::Deletion> StageOrder::edges() const {
  std::vector<Deletion> edges;
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    auto const self = static_cast<std::int32_t>(i);
    for (std::size_t w = 0; w < instances_[i].waits.size(); ++w)
      edges.push_back({Deletion::What::wait, self, w});
    if (before_[i] >= 0)
      edges.push_back({Deletion::What::stream_edge, self, 0});
    if (instances_[i].op->host_sync && i + 1 < instances_.size())
      edges.push_back({Deletion::What::host_sync, self, 0});
  }
  return edges;
}

StageOrder::Verdict StageOrder::without(Deletion const& deletion) const {
  std::vector<Placed> const placed = clocks(deletion);
  bool broken = false;
  check(placed, [&](std::int32_t, std::int32_t, char const*) {
    broken = true;
    return false;
  });
  if (broken)
    return Verdict::rejected;
  auto const self = static_cast<std::size_t>(deletion.instance);
  switch (deletion.what) {
    case Deletion::What::nothing: return Verdict::implied;
    case Deletion::What::wait:
      return ordered(placed, instances_[self].waits[deletion.wait], deletion.instance) ? Verdict::implied
                                                                                       : Verdict::neither;
    case Deletion::What::stream_edge:
      return ordered(placed, before_[self], deletion.instance) ? Verdict::implied : Verdict::neither;
    case Deletion::What::host_sync:
      for (std::size_t later = self + 1; later < placed.size(); ++later)
        if (!ordered(placed, deletion.instance, static_cast<std::int32_t>(later)))
          return Verdict::neither;
      return Verdict::implied;
  }
  return Verdict::neither;
}

std::vector<std::string> StageOrder::findings(std::size_t limit) const {
  std::vector<std::string> findings;
  check(clocks({}), [&](std::int32_t earlier, std::int32_t later, char const* rule) {
    findings.push_back(fmt::format("{} {} {}", name_of(instances_[static_cast<std::size_t>(later)]), rule,
                                   name_of(instances_[static_cast<std::size_t>(earlier)])));
    return findings.size() < limit;
  });
  return findings;
}

} // namespace foreplan

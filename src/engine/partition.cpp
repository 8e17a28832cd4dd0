#include "engine/partition.hpp"

#include "program/instances.hpp"
#include "timing/copies.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace foreplan {

namespace {

// ---------------------------------------------------------------------------------------------- what the program uses

struct StageCommunication {
  std::set<std::pair<Group, Stream>> groups;
  std::set<Channel> channels;
  std::set<Stream> host_streams;
};

StageCommunication communication_of(Program const& program, StageProgram const& stage) {
  StageCommunication used;
  auto add = [&](Op const& op) {
    if (is_collective(op.kind))
      used.groups.emplace(op.group, op.stream);
    else if (is_communication(op.kind))
      used.channels.insert(op.channel);
    else if (is_host_work(op.stream))
      used.host_streams.insert(op.stream);
  };
  std::set<int> programs;
  for (StageLayer const& layer : stage.layers)
    if (layer.program >= 0)
      programs.insert(layer.program);
  for (int index : programs)
    for (SlotKind kind : slot_kinds)
      for (Op const& op : ops_of(program.layer_programs[static_cast<std::size_t>(index)], kind))
        add(op);
  for (Element const& element : stage.elements)
    if (Op const* op = std::get_if<Op>(&element))
      add(*op);
  return used;
}

int dp_period(Plan const& plan, Cluster const& cluster, bool unfold) {
  int const devices = cluster.profile.node.devices;
  int const per_index = plan.tp * plan.cp;
  if (unfold || !cluster.homogeneous() || leaves_contend(cluster) || per_index * plan.dp % devices != 0)
    return plan.dp;
  int const period = std::min(plan.dp, devices / std::gcd(per_index, devices));
  int const shards = degree(plan, Axis::dp);
  return period % shards == 0 || shards % period == 0 ? period : plan.dp;
}

// ------------------------------------------------------------------------------------------------------- the instances

class Builder {
public:
  Builder(Program const& program, Cluster const& cluster, Partition& result)
      : program_(program), plan_(program.plan), cluster_(cluster), result_(result) {}

  void run() {
    for (int pp = 0; pp < plan_.pp; ++pp)
      for (int k = 0; k < ranks_per_stage(); ++k)
        result_.ranks.push_back(Rank(pp * plan_.world_size() / plan_.pp + k));
    result_.communicators_of_rank.resize(result_.ranks.size());
    for (StageProgram const& stage : program_.stages) {
      StageCommunication const used = communication_of(program_, stage);
      for (std::size_t i = 0; i < result_.ranks.size(); ++i) {
        Coordinate const self = coordinate_of(plan_, result_.ranks[i]);
        if (Stage(self.pp) != stage.stage)
          continue;
        for (auto const& [group, stream] : used.groups)
          add_group(group, stream, self);
        for (Channel const& channel : used.channels)
          add_channel(channel, self);
        for (Stream stream : used.host_streams)
          add_host_work(stream, result_.ranks[i]);
      }
    }
    for (CommunicatorInstance& communicator : result_.communicators)
      set_rate(communicator);
  }

private:
  // Ranks of a stage that are looked at: its first ones.
  int ranks_per_stage() const { return plan_.tp * plan_.cp * result_.dp_period; }

  std::int32_t position(Rank rank) const {
    int const of_stage = plan_.world_size() / plan_.pp;
    int const place = rank.value() % of_stage;
    return place < ranks_per_stage() ? rank.value() / of_stage * ranks_per_stage() + place : -1;
  }

  std::int32_t link_position(Link link) {
    auto const [found, is_new] = link_position_.try_emplace(link, static_cast<std::int32_t>(result_.links.size()));
    if (is_new)
      result_.links.push_back(link);
    return found->second;
  }

  void join(std::int32_t rank, std::int32_t communicator) {
    result_.communicators_of_rank[static_cast<std::size_t>(rank)].push_back(communicator);
  }

  static Coordinate first_of(Group const& group, Coordinate self) {
    for (Axis axis : all_axes)
      if (group.axes.contains(axis))
        self[axis] = 0;
    return self;
  }

  // Those that are looked at: with the rest, each of them stands for as many members on as many other nodes.
  std::vector<Rank> members_looked_at(std::vector<Rank> const& members) const {
    std::vector<Rank> result;
    std::copy_if(members.begin(), members.end(), std::back_inserter(result),
                 [&](Rank member) { return position(member) >= 0; });
    return result;
  }

  void add_group(Group const& group, Stream stream, Coordinate self) {
    auto const key = std::tuple(group, stream, Channel{}, rank_at(plan_, first_of(group, self)));
    auto const [found, is_new] = known_.try_emplace(key, static_cast<std::int32_t>(result_.communicators.size()));
    join(position(rank_at(plan_, self)), found->second);
    if (!is_new)
      return;
    CommunicatorInstance communicator{.what = group,
                                      .stream = stream,
                                      .layout = {},
                                      .same_node = false,
                                      .unit_rate = {},
                                      .members = {},
                                      .links = {},
                                      .class_index = 0};
    std::vector<Rank> const all = foreplan::members_of(plan_, rank_at(plan_, self), group);
    std::vector<Rank> const members = members_looked_at(all);
    communicator.layout = layout_of(cluster_, all);
    for (std::size_t i = 0; i < members.size();) {
      std::size_t end = i;
      while (end < members.size() && node_of(cluster_, members[end]) == node_of(cluster_, members[i]))
        ++end;
      for (std::size_t k = i; k < end; ++k)
        add_member(communicator, members[k], static_cast<int>(k - i), static_cast<int>(end - i));
      i = end;
    }
    result_.communicators.push_back(std::move(communicator));
  }

  void add_member(CommunicatorInstance& communicator, Rank member, int place, int on_node) {
    std::int32_t const at = position(member);
    if (at < 0 || communicator.layout.members == 1)
      return;
    communicator.members.push_back(at);
    add_links(communicator, ring_links(cluster_, communicator.layout, member, place, on_node));
  }

  // The communicator is the one that comes next in the result.
  void add_links(CommunicatorInstance& communicator, std::vector<LinkShare> const& shares) {
    for (LinkShare const& share : shares) {
      std::int32_t const link = link_position(share.link);
      link_places_.resize(result_.links.size());
      LinkPlace& place = link_places_[static_cast<std::size_t>(link)];
      if (place.communicator == std::ssize(result_.communicators)) {
        communicator.links[place.index].second += share.multiplicity;
      } else {
        place = {std::ssize(result_.communicators), communicator.links.size()};
        communicator.links.emplace_back(link, share.multiplicity);
      }
    }
  }

  void add_channel(Channel const& channel, Coordinate self) {
    Coordinate from = self, to = self;
    from.pp = channel.from.value();
    to.pp = channel.to.value();
    auto const key = std::tuple(Group{}, Stream::compute, channel, rank_at(plan_, from));
    auto const [found, is_new] = known_.try_emplace(key, static_cast<std::int32_t>(result_.communicators.size()));
    join(position(rank_at(plan_, self)), found->second);
    if (!is_new)
      return;
    CommunicatorInstance communicator{.what = channel,
                                      .stream = Stream::compute,
                                      .layout = {2, 1, 1},
                                      .same_node = false,
                                      .unit_rate = {},
                                      .members = {position(rank_at(plan_, from)), position(rank_at(plan_, to))},
                                      .links = {},
                                      .class_index = 0};
    Rank const sender = rank_at(plan_, from), receiver = rank_at(plan_, to);
    communicator.same_node = node_of(cluster_, sender) == node_of(cluster_, receiver);
    add_links(communicator, transfer_links(cluster_, sender, receiver));
    result_.communicators.push_back(std::move(communicator));
  }

  void add_host_work(Stream stream, Rank rank) {
    auto const index = static_cast<std::int32_t>(result_.communicators.size());
    join(position(rank), index);
    CommunicatorInstance communicator{.what = HostWork{},
                                      .stream = stream,
                                      .layout = {1, 1, 1},
                                      .same_node = true,
                                      .unit_rate = {},
                                      .members = {position(rank)},
                                      .links = {},
                                      .class_index = 0};
    for (Link const& link : links_of_host_work(stream, rank))
      communicator.links.emplace_back(link_position(link), 1);
    result_.communicators.push_back(std::move(communicator));
  }

  std::vector<Link> links_of_host_work(Stream stream, Rank rank) const {
    if (stream == Stream::host)
      return {host_memory_link(cluster_, rank)};
    return copy_links(cluster_, rank, copy_path(stream));
  }

  void set_rate(CommunicatorInstance& communicator) const {
    BytesPerSecond rate(1e30);
    for (auto const& [link, multiplicity] : communicator.links)
      rate = std::min(rate, capacity(cluster_, result_.links[static_cast<std::size_t>(link)]) / multiplicity);
    communicator.unit_rate = rate;
  }

  Program const& program_;
  Plan const& plan_;
  Cluster const& cluster_;
  Partition& result_;
  std::map<std::tuple<Group, Stream, Channel, Rank>, std::int32_t> known_;
  std::map<Link, std::int32_t> link_position_;
  // By link: where it stands among the links of the communicator that was the last to use it.
  struct LinkPlace {
    std::ptrdiff_t communicator = -1;
    std::size_t index = 0;
  };
  std::vector<LinkPlace> link_places_;
};

// --------------------------------------------------------------------------------------------------- colour refinement

std::uint64_t mix(std::uint64_t x) { // splitmix64's finaliser
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
std::uint64_t mix(std::uint64_t a, std::uint64_t b) { return mix(mix(a) + b); }
std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }

using Colours = std::vector<std::uint64_t>;

std::uint64_t colour_of(CommunicatorInstance const& c) {
  std::uint64_t colour = mix(static_cast<std::uint64_t>(c.layout.members), static_cast<std::uint64_t>(c.layout.nodes));
  colour = mix(colour, static_cast<std::uint64_t>(c.layout.fewest_on_a_node));
  colour = mix(colour, bits(c.unit_rate.value()));
  if (Group const* group = std::get_if<Group>(&c.what))
    return mix(mix(colour, static_cast<std::uint64_t>(c.stream)),
               2ULL * group->axes.bits() + (group->pipeline_ends ? 1 : 0));
  if (std::holds_alternative<HostWork>(c.what))
    return mix(mix(colour, static_cast<std::uint64_t>(c.stream)), 3000);
  Channel const& channel = std::get<Channel>(c.what);
  colour = mix(colour, 1000 + static_cast<std::uint64_t>(channel.what) + (c.same_node ? 2 : 0));
  colour = mix(colour, static_cast<std::uint64_t>(channel.from.value()));
  return mix(colour, static_cast<std::uint64_t>(channel.to.value()));
}

std::size_t distinct(Colours const& colours) {
  return std::unordered_set<std::uint64_t>(colours.begin(), colours.end()).size();
}

// Numbers the colours in order of first appearance.
int number(Colours const& colours, std::vector<std::int32_t>& classes) {
  std::unordered_map<std::uint64_t, std::int32_t> numbers;
  classes.clear();
  for (std::uint64_t colour : colours)
    classes.push_back(numbers.try_emplace(colour, static_cast<std::int32_t>(numbers.size())).first->second);
  return static_cast<int>(numbers.size());
}

// A neighbourhood's colour must not depend on an order: the sum of its members' mixed colours.
void refine(Partition const& p, Colours& ranks, Colours& communicators, Colours& links) {
  Colours new_ranks = ranks, new_links = links, new_communicators = communicators;
  for (std::size_t c = 0; c < communicators.size(); ++c) {
    CommunicatorInstance const& communicator = p.communicators[c];
    bool const is_channel = std::holds_alternative<Channel>(communicator.what);
    std::uint64_t around = 0;
    for (std::size_t m = 0; m < communicator.members.size(); ++m) {
      auto const rank = static_cast<std::size_t>(communicator.members[m]);
      std::uint64_t const role = is_channel ? m : 0; // sender, receiver
      around += mix(ranks[rank], 11 + role);
      new_ranks[rank] += mix(communicators[c], 21 + role);
    }
    for (auto const& [link, multiplicity] : communicator.links) {
      auto const load = static_cast<std::uint64_t>(multiplicity);
      around += mix(links[static_cast<std::size_t>(link)], 100 + load);
      new_links[static_cast<std::size_t>(link)] += mix(communicators[c], 200 + load);
    }
    new_communicators[c] = mix(communicators[c], around);
  }
  for (std::size_t i = 0; i < ranks.size(); ++i)
    ranks[i] = mix(ranks[i], new_ranks[i]);
  for (std::size_t i = 0; i < links.size(); ++i)
    links[i] = mix(links[i], new_links[i]);
  communicators = std::move(new_communicators);
}

void fold(Partition& p, Plan const& plan, Cluster const& cluster) {
  Colours ranks, communicators, links;
  for (Rank rank : p.ranks)
    ranks.push_back(mix(static_cast<std::uint64_t>(coordinate_of(plan, rank).pp), bits(compute_speed(cluster, rank))));
  for (CommunicatorInstance const& communicator : p.communicators)
    communicators.push_back(colour_of(communicator));
  for (Link link : p.links)
    links.push_back(mix(static_cast<std::uint64_t>(link.kind), bits(capacity(cluster, link).value())));
  for (std::size_t before = 0, now = distinct(ranks) + distinct(communicators) + distinct(links); now != before;) {
    before = now;
    refine(p, ranks, communicators, links);
    now = distinct(ranks) + distinct(communicators) + distinct(links);
  }
  p.rank_classes = number(ranks, p.rank_class);
  p.link_classes = number(links, p.link_class);
  std::vector<std::int32_t> classes;
  p.communicator_classes = number(communicators, classes);
  for (std::size_t c = 0; c < classes.size(); ++c)
    p.communicators[c].class_index = classes[c];
}

void leave_unfolded(Partition& p) {
  p.rank_class.resize(p.ranks.size());
  std::iota(p.rank_class.begin(), p.rank_class.end(), 0);
  p.link_class.resize(p.links.size());
  std::iota(p.link_class.begin(), p.link_class.end(), 0);
  for (std::size_t c = 0; c < p.communicators.size(); ++c)
    p.communicators[c].class_index = static_cast<std::int32_t>(c);
  p.rank_classes = static_cast<int>(p.ranks.size());
  p.link_classes = static_cast<int>(p.links.size());
  p.communicator_classes = static_cast<int>(p.communicators.size());
}

} // namespace

bool is_host_work(Stream stream) {
  return stream == Stream::copy_down || stream == Stream::copy_up || stream == Stream::host ||
         stream == Stream::disk_read || stream == Stream::disk_write;
}

Partition partition(Program const& program, Cluster const& cluster, bool unfold) {
  Partition result;
  result.dp_period = dp_period(program.plan, cluster, unfold);
  Builder(program, cluster, result).run();
  if (unfold)
    leave_unfolded(result);
  else
    fold(result, program.plan, cluster);
  return result;
}

} // namespace foreplan

#include "interpreter/execution_graph.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <queue>
#include <random>
#include <stdexcept>
#include <tuple>

namespace foreplan {
namespace {

using Member = ExecutionGraph::Member;

StageStorage const& stage_of(Program const& program, std::vector<StageStorage> const& stages, int rank) {
  return stages[static_cast<std::size_t>(coordinate_of(program.plan, Rank(rank)).pp)];
}

// Members of a node still to be filled in; instance -1: not there yet.
struct Rendezvous {
  std::vector<Member> members;
  OpKind kind = OpKind::wait;
  bool fits = true; // all members run the same kind of op
};

// The k-th rendezvous of one communicator or channel.
using Meetings = std::vector<Rendezvous>;

class GraphBuilder {
public:
  GraphBuilder(Program const& program, std::vector<StageStorage> const& stages) : program_(program), stages_(stages) {}

  ExecutionGraph take() {
    for (int rank = 0; rank < program_.plan.world_size(); ++rank)
      add_instances(rank);
    add_meetings();
    graph_.first_member.push_back(static_cast<std::int32_t>(graph_.members.size()));
    for (int rank = 0; rank < program_.plan.world_size(); ++rank)
      add_edges(rank);
    sort_edges();
    return std::move(graph_);
  }

private:
  // Nodes of one instance; what has several members is noted down in collectives_ and transfers_.
  void add_instances(int rank) {
    StageStorage const& stage = stage_of(program_, stages_, rank);
    auto& nodes = node_of_.emplace_back(stage.bound.size(), -1);
    std::map<std::pair<Group, Stream>, std::size_t> collectives; // how many were met, by communicator
    std::map<std::pair<Channel, bool>, std::size_t> transfers;   // sent or received
    for (std::size_t i = 0; i < stage.bound.size(); ++i) {
      Op const& op = *stage.bound[i].op;
      Member const member{rank, static_cast<std::int32_t>(i)};
      if (is_collective(op.kind))
        meet(collective(op, rank), collectives[{op.group, op.stream}]++, op.kind, member);
      else if (op.kind == OpKind::send || op.kind == OpKind::receive)
        meet(transfer(op, rank), transfers[{op.channel, op.kind == OpKind::send}]++, OpKind::send, member);
      else {
        nodes[i] = add_node();
        graph_.members.push_back(member);
      }
    }
  }

  std::int32_t add_node() {
    graph_.first_member.push_back(static_cast<std::int32_t>(graph_.members.size()));
    graph_.predecessor_count.push_back(0);
    return static_cast<std::int32_t>(graph_.predecessor_count.size()) - 1;
  }

  // Where the members of a communicator or channel meet, and this rank's place among them.
  struct Place {
    Meetings* meetings;
    std::size_t members;
    std::size_t index;
  };

  Place collective(Op const& op, int rank) {
    Group const& group = op.group;
    std::vector<Rank> const members = members_of(program_.plan, Rank(rank), group);
    auto const self = std::find(members.begin(), members.end(), Rank(rank));
    if (self == members.end()) // a middle stage in a group of the pipeline's ends: nobody comes
      return {&collectives_[{group, op.stream, -1 - rank}], 2, 0};
    return {&collectives_[{group, op.stream, members.front().value()}], members.size(),
            static_cast<std::size_t>(self - members.begin())};
  }

  Place transfer(Op const& op, int rank) {
    Coordinate on_first_stage = coordinate_of(program_.plan, Rank(rank));
    on_first_stage.pp = 0;
    return {&transfers_[{op.channel, rank_at(program_.plan, on_first_stage)}], 2, op.kind == OpKind::send ? 0U : 1U};
  }

  static void meet(Place place, std::size_t occasion, OpKind kind, Member member) {
    if (place.meetings->size() <= occasion)
      place.meetings->resize(occasion + 1);
    Rendezvous& rendezvous = (*place.meetings)[occasion];
    if (rendezvous.members.empty()) {
      rendezvous.members.assign(place.members, Member{-1, -1});
      rendezvous.kind = kind;
    }
    rendezvous.members[place.index] = member;
    rendezvous.fits = rendezvous.fits && rendezvous.kind == kind;
  }

  void add_meetings() {
    for (auto const& [key, meetings] : collectives_)
      std::for_each(meetings.begin(), meetings.end(), [&](Rendezvous const& meeting) { add_meeting(meeting); });
    for (auto const& [key, meetings] : transfers_)
      std::for_each(meetings.begin(), meetings.end(), [&](Rendezvous const& meeting) { add_meeting(meeting); });
  }

  void add_meeting(Rendezvous const& rendezvous) {
    std::int32_t const node = add_node();
    bool complete = rendezvous.fits;
    for (Member const& member : rendezvous.members)
      if (member.rank < 0) {
        complete = false;
      } else {
        graph_.members.push_back(member);
        node_of_[static_cast<std::size_t>(member.rank)][static_cast<std::size_t>(member.instance)] = node;
      }
    graph_.predecessor_count.back() = complete ? 0 : 1;
  }

  void add_edges(int rank) {
    StageStorage const& stage = stage_of(program_, stages_, rank);
    std::vector<std::int32_t> const& nodes = node_of_[static_cast<std::size_t>(rank)];
    std::array<std::int32_t, stream_count> last{};
    last.fill(-1);
    std::int32_t host_sync = -1;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      Op const& op = *stage.bound[i].op;
      std::int32_t& before = last[static_cast<std::size_t>(op.stream)];
      add_edge(before, nodes[i]);
      add_edge(host_sync, nodes[i]);
      for (std::int32_t wait : stage.instances[i].waits)
        add_edge(nodes[static_cast<std::size_t>(wait)], nodes[i]);
      before = nodes[i];
      if (op.host_sync)
        host_sync = nodes[i];
    }
  }

  void add_edge(std::int32_t from, std::int32_t to) {
    if (from >= 0)
      edges_.emplace_back(from, to);
  }

  void sort_edges() {
    std::vector<std::int32_t>& first = graph_.first_successor;
    first.assign(graph_.size() + 1, 0);
    for (auto const& [from, to] : edges_) {
      ++first[static_cast<std::size_t>(from) + 1];
      ++graph_.predecessor_count[static_cast<std::size_t>(to)];
    }
    for (std::size_t node = 0; node < graph_.size(); ++node)
      first[node + 1] += first[node];
    std::vector<std::int32_t> next(first.begin(), first.end() - 1);
    graph_.successors.resize(edges_.size());
    for (auto const& [from, to] : edges_)
      graph_.successors[static_cast<std::size_t>(next[static_cast<std::size_t>(from)]++)] = to;
  }

  Program const& program_;
  std::vector<StageStorage> const& stages_;
  ExecutionGraph graph_;
  std::vector<std::vector<std::int32_t>> node_of_; // by rank and instance
  std::vector<std::pair<std::int32_t, std::int32_t>> edges_;
  std::map<std::tuple<Group, Stream, std::int32_t>, Meetings> collectives_; // by communicator and its first rank
  std::map<std::pair<Channel, Rank>, Meetings> transfers_; // by channel and its ranks' like on the first stage
};

bool is_delayed(Program const& program, std::vector<StageStorage> const& stages, std::span<Member const> members,
                Order const& order) {
  return std::any_of(members.begin(), members.end(), [&](Member const& member) {
    StageStorage const& stage = stage_of(program, stages, member.rank);
    return coordinate_of(program.plan, Rank(member.rank)).pp == order.stage.value() &&
           stage.bound[static_cast<std::size_t>(member.instance)].op->stream == order.stream;
  });
}

// Higher runs first. Equal priorities go by node.
std::vector<std::int64_t> priorities(Program const& program, std::vector<StageStorage> const& stages,
                                     ExecutionGraph const& graph, Order const& order) {
  std::mt19937_64 random(order.seed);
  std::vector<std::int64_t> result(graph.size());
  for (std::size_t node = 0; node < graph.size(); ++node) {
    std::span<Member const> const members = graph.members_of(node);
    if (order.kind == Order::Kind::delayed)
      result[node] = is_delayed(program, stages, members, order) ? -1 : static_cast<std::int64_t>(random() >> 1);
    else
      result[node] = order.kind == Order::Kind::latest_first ? members[0].instance : -members[0].instance;
  }
  return result;
}

// The nodes that may start; take() removes one.
class ReadyByPriority {
public:
  explicit ReadyByPriority(std::vector<std::int64_t> priority) : priority_(std::move(priority)) {}
  void add(std::int32_t node) { queue_.emplace(priority_[static_cast<std::size_t>(node)], node); }
  [[nodiscard]] bool empty() const { return queue_.empty(); }
  std::int32_t take() {
    std::int32_t const node = queue_.top().second;
    queue_.pop();
    return node;
  }

private:
  std::vector<std::int64_t> priority_;
  std::priority_queue<std::pair<std::int64_t, std::int32_t>> queue_;
};

class ReadyAtRandom {
public:
  explicit ReadyAtRandom(std::uint64_t seed) : random_(seed) {}
  void add(std::int32_t node) { nodes_.push_back(node); }
  [[nodiscard]] bool empty() const { return nodes_.empty(); }
  std::int32_t take() {
    std::swap(nodes_[random_() % nodes_.size()], nodes_.back());
    std::int32_t const node = nodes_.back();
    nodes_.pop_back();
    return node;
  }

private:
  std::mt19937_64 random_;
  std::vector<std::int32_t> nodes_;
};

// Returns what was left to end before each node; all zero when everything ran.
template <class Ready>
std::vector<std::int32_t> run_all(ExecutionGraph const& graph, Ready ready,
                                  std::function<void(std::size_t)> const& run) {
  std::vector<std::int32_t> missing = graph.predecessor_count;
  for (std::size_t node = 0; node < graph.size(); ++node)
    if (missing[node] == 0)
      ready.add(static_cast<std::int32_t>(node));
  while (!ready.empty()) {
    auto const node = static_cast<std::size_t>(ready.take());
    run(node);
    for (std::int32_t i = graph.first_successor[node]; i < graph.first_successor[node + 1]; ++i) {
      std::int32_t const successor = graph.successors[static_cast<std::size_t>(i)];
      if (--missing[static_cast<std::size_t>(successor)] == 0)
        ready.add(successor);
    }
  }
  return missing;
}

void refuse_stuck(Program const& program, std::vector<StageStorage> const& stages, ExecutionGraph const& graph,
                  std::vector<std::int32_t> const& missing) {
  std::map<std::pair<int, Stream>, std::int32_t> first; // stuck instance by rank and stream
  for (std::size_t node = 0; node < graph.size(); ++node)
    if (missing[node] > 0)
      for (Member const& member : graph.members_of(node)) {
        StageStorage const& stage = stage_of(program, stages, member.rank);
        Stream const stream = stage.bound[static_cast<std::size_t>(member.instance)].op->stream;
        auto const [found, is_new] = first.try_emplace({member.rank, stream}, member.instance);
        found->second = std::min(found->second, member.instance);
      }
  if (first.empty())
    return;
  std::string message = "the step is stuck at";
  for (auto const& [where, position] : first) {
    BoundInstance const& instance = stage_of(program, stages, where.first).bound[static_cast<std::size_t>(position)];
    message += " '" + instance.op->name + "' (rank " + std::to_string(where.first) + ", stream " +
               std::string(to_string(where.second)) + ", micro-batch " + std::to_string(instance.micro_batch.value()) +
               ")";
  }
  throw std::runtime_error(message);
}

} // namespace

std::string to_string(Order const& order) {
  switch (order.kind) {
    case Order::Kind::program: return "program order";
    case Order::Kind::latest_first: return "latest first";
    case Order::Kind::delayed:
      return "stream " + std::string(to_string(order.stream)) + " of stage " + std::to_string(order.stage.value()) +
             " delayed, seed " + std::to_string(order.seed);
    case Order::Kind::random: break;
  }
  return "random, seed " + std::to_string(order.seed);
}

std::vector<Order> adversarial_orders(Program const& program, std::vector<StageStorage> const& stages, int count) {
  std::vector<Order> orders{{.kind = Order::Kind::latest_first}};
  auto next_seed = [&] { return static_cast<std::uint64_t>(orders.size()); };
  for (int stream = 0; stream < stream_count; ++stream)
    for (int stage = 0; stage < program.plan.pp; ++stage) {
      std::vector<BoundInstance> const& instances = stages[static_cast<std::size_t>(stage)].bound;
      Order const order{Order::Kind::delayed, next_seed(), Stage(stage), static_cast<Stream>(stream)};
      if (std::any_of(instances.begin(), instances.end(),
                      [&](BoundInstance const& instance) { return instance.op->stream == order.stream; }))
        orders.push_back(order);
    }
  while (orders.size() < static_cast<std::size_t>(count))
    orders.push_back({.kind = Order::Kind::random, .seed = next_seed()});
  orders.resize(static_cast<std::size_t>(count));
  return orders;
}

ExecutionGraph make_execution_graph(Program const& program, std::vector<StageStorage> const& stages) {
  return GraphBuilder(program, stages).take();
}

void execute(Program const& program, std::vector<StageStorage> const& stages, ExecutionGraph const& graph,
             Order const& order, std::function<void(std::size_t)> const& run) {
  std::vector<std::int32_t> const missing =
      order.kind == Order::Kind::random
          ? run_all(graph, ReadyAtRandom(order.seed), run)
          : run_all(graph, ReadyByPriority(priorities(program, stages, graph, order)), run);
  refuse_stuck(program, stages, graph, missing);
}

} // namespace foreplan

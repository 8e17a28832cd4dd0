#include "validate/devices/communicators.hpp"

#include <algorithm>
#include <stdexcept>

namespace foreplan {
namespace {

// Calls visit(op) for every op that stands in the program once, whichever stage runs it.
template <class Visit>
void for_each_op(Program const& program, Visit visit) {
  for (LayerProgram const& layer : program.layer_programs)
    for (SlotKind kind : slot_kinds)
      std::for_each(ops_of(layer, kind).begin(), ops_of(layer, kind).end(), visit);
  for (StageProgram const& stage : program.stages)
    for (Element const& element : stage.elements)
      if (Op const* op = std::get_if<Op>(&element))
        visit(*op);
}

Rank peer_of(Plan const& plan, Rank rank, Op const& op) {
  Coordinate peer = coordinate_of(plan, rank);
  peer.pp = (op.kind == OpKind::send ? op.channel.to : op.channel.from).value();
  return rank_at(plan, peer);
}

} // namespace

Communicators::Communicators(Program const& program, MPI_Comm world) : plan_(program.plan) {
  int self = 0;
  MPI_Comm_rank(world, &self);
  rank_ = Rank(self);
  for_each_op(program, [&](Op const& op) {
    if (is_collective(op.kind))
      groups_.try_emplace({op.group, op.stream}, MPI_COMM_NULL);
    else if (is_communication(op.kind))
      tags_.try_emplace(op.channel, 0);
  });
  for (auto& [key, communicator] : groups_) { // in the order of the keys: the same on every rank
    std::vector<Rank> const members = members_of(plan_, rank_, key.first);
    auto const place = std::find(members.begin(), members.end(), rank_);
    bool const belongs = place != members.end();
    MPI_Comm_split(world, belongs ? members.front().value() : MPI_UNDEFINED, static_cast<int>(place - members.begin()),
                   &communicator);
  }
  int next = 0;
  for (auto& [channel, tag] : tags_)
    tag = next++;
  if (!tags_.empty())
    MPI_Comm_dup(world, &transfers_);
}

Communicators::~Communicators() {
  for (auto& [key, communicator] : groups_)
    if (communicator != MPI_COMM_NULL)
      MPI_Comm_free(&communicator);
  if (transfers_ != MPI_COMM_NULL)
    MPI_Comm_free(&transfers_);
}

Endpoint Communicators::endpoint_of(Op const& op) const {
  if (!is_collective(op.kind))
    return {transfers_, peer_of(plan_, rank_, op).value(), tags_.at(op.channel)};
  MPI_Comm const communicator = groups_.at({op.group, op.stream});
  if (communicator == MPI_COMM_NULL)
    throw std::runtime_error("op '" + op.name + "': rank " + std::to_string(rank_.value()) + " is not in its group");
  return {.communicator = communicator};
}

std::vector<Rank> peers_of(Plan const& plan, Rank rank, Op const& op) {
  if (!is_communication(op.kind))
    return {};
  if (!is_collective(op.kind))
    return {peer_of(plan, rank, op)};
  std::vector<Rank> members = members_of(plan, rank, op.group);
  std::erase(members, rank);
  return members;
}

} // namespace foreplan

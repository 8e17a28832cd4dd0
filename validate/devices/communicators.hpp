// The communicators of a program's groups and channels.
#pragma once

#include "program/program.hpp"
#include "validate/devices/transport.hpp"

#include <map>
#include <utility>

namespace foreplan {

// One communicator a group and stream, so that streams never share one; one for all transfers, told apart by tags.
class Communicators {
public:
  // Collective over `world`, whose ranks are those of the plan.
  Communicators(Program const& program, MPI_Comm world);
  ~Communicators(); // collective, too
  Communicators(Communicators const&) = delete;
  Communicators& operator=(Communicators const&) = delete;

  // Of a communication op of this rank. Throws std::runtime_error if this rank has no part in it.
  [[nodiscard]] Endpoint endpoint_of(Op const& op) const;

private:
  Plan const& plan_;
  Rank rank_;
  std::map<std::pair<Group, Stream>, MPI_Comm> groups_;
  std::map<Channel, int> tags_;
  MPI_Comm transfers_ = MPI_COMM_NULL;
};

// The ranks besides this one that a communication op waits for.
std::vector<Rank> peers_of(Plan const& plan, Rank rank, Op const& op);

} // namespace foreplan

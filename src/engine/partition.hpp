// Folding: which ranks do the same work at the same time on equivalent links. The coarsest partition of ranks,
// communicators and links in which all members of a class look alike (colour refinement): equal stage and device; roles in
// equal communicators; communicators of equal members and links; links with equal loads. Simulating one member of each
// class is then exact.
#pragma once

#include "cluster/links.hpp"
#include "program/program.hpp"
#include "timing/collectives/ring.hpp"

#include <cstdint>
#include <variant>
#include <vector>

namespace foreplan {

// What one rank's stream does on its host: copies, files, computation. It shares the host's links with its neighbours' work.
struct HostWork {};
bool is_host_work(Stream stream);

struct CommunicatorInstance {
  std::variant<Group, Channel, HostWork> what;
  Stream stream = Stream::tp; // of a group: a group that works on two streams has two communicators
  GroupLayout layout;
  bool same_node = false;                                   // of a channel's two ends
  BytesPerSecond unit_rate;                                 // what its links allow when nothing else runs
  std::vector<std::int32_t> members;                        // positions in Partition::ranks of those that are there
  std::vector<std::pair<std::int32_t, std::int32_t>> links; // position in Partition::links, multiplicity
  std::int32_t class_index = 0;
};

// On equal nodes, shifting the dp index by as much as fills whole nodes changes nothing: only dp indices below
// `dp_period` are looked at, and each stands for dp / dp_period ranks.
struct Partition {
  int dp_period = 1;
  std::vector<Rank> ranks;
  std::vector<std::int32_t> rank_class;                         // by position in ranks
  std::vector<std::vector<std::int32_t>> communicators_of_rank; // by position in ranks: positions in communicators
  std::vector<CommunicatorInstance> communicators;
  std::vector<Link> links;
  std::vector<std::int32_t> link_class;
  int rank_classes = 0;
  int communicator_classes = 0;
  int link_classes = 0;
};

// `unfold`: every rank, communicator and link is a class of its own.
Partition partition(Program const& program, Cluster const& cluster, bool unfold);

} // namespace foreplan

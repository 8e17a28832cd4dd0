// The processes of a run as a job: what each is doing, who has died, stopped or hangs, and the end of all of them when one
// cannot go on. The ranks of a node share a board in memory; a thread of each rank watches it.
#pragma once

#include "program/program.hpp"

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace foreplan {

// What a rank is doing, for all ranks of its node to read. Setting it costs nothing that could be measured.
struct RankStatus {
  std::atomic<std::int32_t> process{0};   // its id
  std::atomic<std::int32_t> reporter{-1}; // of the node's first rank: who prints the cause of the end
  std::atomic<std::uint32_t> progress{0}; // grows with all that takes time: an op that has ended
  std::atomic<bool> finished{false};      // as it should
  std::array<std::atomic<std::int32_t>, stream_count>
      instance{}; // that a stream is running: 1 + position in the issue order; 0: none
};

class Job {
public:
  // MPI must be initialised with MPI_THREAD_MULTIPLE, and SIGTERM blocked in all threads. `timeout`: seconds without any
  // progress on this node that end the job. Collective over MPI_COMM_WORLD.
  explicit Job(double timeout);
  ~Job(); // collective
  Job(Job const&) = delete;
  Job& operator=(Job const&) = delete;

  [[nodiscard]] RankStatus& self() { return *node_ranks_[static_cast<std::size_t>(node_rank_)].status; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] MPI_Comm node() const { return node_; }
  [[nodiscard]] int ranks_of_node() const { return static_cast<int>(node_ranks_.size()); }
  void set_timeout(double seconds) { timeout_ = seconds; }

  // What this rank is doing outside of any op: "reading the plan". The text must live on.
  void doing(char const* what) {
    doing_ = what;
    made_progress();
  }
  void made_progress() { self().progress.fetch_add(1, std::memory_order_relaxed); }

  // How to speak of the ops that run: of any rank of the job (empty if it runs something else), and the ranks of the job that one of
  // this rank's own waits for.
  struct Names {
    std::function<std::string(int rank, std::int32_t instance)> op;
    std::function<std::vector<int>(std::int32_t instance)> peers;
  };
  void set_names(Names names);

  // Ends all processes of the job with one line, unless another rank of the node has already said why.
  [[noreturn]] void fail(std::string const& cause, int code = 1);

private:
  struct NodeRank {
    int rank = 0;         // of the job
    bool visible = false; // its process can be looked at from here
    RankStatus* status = nullptr;
  };

  void watch();
  void look_for_dead();
  [[nodiscard]] bool has_stalled();
  [[nodiscard]] std::string stall() const;
  [[nodiscard]] std::string state_of(int rank) const;
  [[nodiscard]] std::string place_of(NodeRank const& rank) const;
  [[nodiscard]] bool claim();

  int rank_ = 0, size_ = 1, node_rank_ = 0;
  MPI_Comm node_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<NodeRank> node_ranks_;
  std::atomic<double> timeout_;
  std::atomic<char const*> doing_{"starting"};
  mutable std::mutex names_mutex_;
  Names names_;
  std::uint64_t seen_progress_ = 0;
  double seen_at_ = 0;
  std::atomic<bool> ends_{false};
  std::thread watcher_;
};

} // namespace foreplan

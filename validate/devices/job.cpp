#include "validate/devices/job.hpp"

#include "validate/devices/clock.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <new>

#include <unistd.h>

namespace foreplan {
namespace {

constexpr double look_interval = 0.1; // seconds between two looks at the board
constexpr unsigned abort_seconds = 3; // that MPI gets to end the other processes

sigset_t only(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  return set;
}

// As /proc says it: 'R' running, 'S' sleeping, 'T' stopped, 'Z' dead but not yet buried; 0: there is none.
char process_state(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  std::size_t const name_end = text.rfind(')');
  return name_end + 2 < text.size() ? text[name_end + 2] : '\0';
}

bool is_dead(int process) {
  char const state = process_state(process);
  return state == '\0' || state == 'Z' || state == 'X';
}

} // namespace

Job::Job(double timeout) : timeout_(timeout) {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node_);
  MPI_Comm_rank(node_, &node_rank_);
  int count = 0;
  MPI_Comm_size(node_, &count);
  void* own = nullptr;
  MPI_Win_allocate_shared(sizeof(RankStatus), 1, MPI_INFO_NULL, node_, &own, &window_);
  new (own) RankStatus;
  static_cast<RankStatus*>(own)->process = getpid();
  std::vector<int> ranks(static_cast<std::size_t>(count));
  MPI_Allgather(&rank_, 1, MPI_INT, ranks.data(), 1, MPI_INT, node_); // also: all have begun their status
  for (int i = 0; i < count; ++i) {
    MPI_Aint size = 0;
    int unit = 0;
    void* status = nullptr;
    MPI_Win_shared_query(window_, i, &size, &unit, &status);
    auto* const theirs = static_cast<RankStatus*>(status);
    node_ranks_.push_back({ranks[static_cast<std::size_t>(i)], !is_dead(theirs->process), theirs});
  }
  watcher_ = std::thread([this] { watch(); });
}

Job::~Job() {
  self().finished = true;
  ends_ = true;
  pthread_kill(watcher_.native_handle(), SIGTERM); // wakes it
  watcher_.join();
  MPI_Win_free(&window_);
  MPI_Comm_free(&node_);
}

void Job::set_names(Names names) {
  std::lock_guard const lock(names_mutex_);
  names_ = std::move(names);
}

bool Job::claim() {
  int nobody = -1;
  return node_ranks_.front().status->reporter.compare_exchange_strong(nobody, rank_) || nobody == rank_;
}

void Job::fail(std::string const& cause, int code) {
  if (claim()) {
    std::string const line = fmt::format("foreplan-run: rank {}: {}\n", rank_, cause);
    [[maybe_unused]] auto const written = write(STDERR_FILENO, line.data(), line.size());
    alarm(abort_seconds); // should MPI itself hang
    MPI_Abort(MPI_COMM_WORLD, code);
  } else {
    sleep(abort_seconds);
  }
  _exit(code);
}

// ------------------------------------------------------------------------------------------------------------- watching

void Job::watch() {
  sigset_t const terminate = only(SIGTERM);
  timespec const interval{0, static_cast<long>(look_interval * 1e9)};
  seen_at_ = now();
  while (true) {
    bool const told_to_end = sigtimedwait(&terminate, nullptr, &interval) == SIGTERM;
    if (ends_)
      return;
    look_for_dead();
    if (told_to_end)
      _exit(1); // by the launcher, which says why
    if (node_ranks_.front().status->reporter >= 0) {
      sleep(abort_seconds); // the reporter's MPI_Abort comes first
      _exit(1);
    }
    if (has_stalled())
      fail(stall());
  }
}

void Job::look_for_dead() {
  for (NodeRank const& other : node_ranks_)
    if (other.visible && other.rank != rank_ && !other.status->finished && is_dead(other.status->process) && claim())
      fail(fmt::format("rank {} (process {}) has died{}", other.rank, other.status->process.load(), place_of(other)));
}

bool Job::has_stalled() {
  std::uint64_t progress = 0;
  for (NodeRank const& rank : node_ranks_)
    progress += rank.status->progress;
  if (progress != seen_progress_ || std::all_of(node_ranks_.begin(), node_ranks_.end(),
                                                [](NodeRank const& rank) { return rank.status->finished.load(); })) {
    seen_progress_ = progress;
    seen_at_ = now();
  }
  // Nodes need not print all at once: the first to notice ends the others.
  return now() - seen_at_ > timeout_ + (rank_ == 0 ? 0 : 0.5);
}

// " in op 'x' (layer 3, micro-batch 0, stream tp)", of the streams' ops the first that communicates, else the first.
std::string Job::place_of(NodeRank const& rank) const {
  std::lock_guard const lock(names_mutex_);
  std::string text;
  for (auto const& instance : rank.status->instance)
    if (int const position = instance.load(); position > 0 && names_.op && text.empty())
      text = names_.op(rank.rank, position - 1);
  return text.empty() ? "" : " in " + text;
}

std::string Job::state_of(int rank) const {
  auto const found = std::find_if(node_ranks_.begin(), node_ranks_.end(),
                                  [rank](NodeRank const& other) { return other.rank == rank; });
  if (found == node_ranks_.end())
    return fmt::format("rank {} of another node", rank);
  bool const stopped = found->visible && process_state(found->status->process) == 'T';
  return fmt::format("rank {}{}{}", rank, stopped ? ", which is stopped," : "", place_of(*found));
}

std::string Job::stall() const {
  double const seconds = timeout_;
  for (NodeRank const& other : node_ranks_)
    if (other.rank != rank_ && other.visible && process_state(other.status->process) == 'T')
      return fmt::format("no progress for {:.0f} s{}, waiting for {}", seconds,
                         place_of(node_ranks_[static_cast<std::size_t>(node_rank_)]), state_of(other.rank));
  RankStatus const& self = *node_ranks_[static_cast<std::size_t>(node_rank_)].status;
  for (auto const& instance : self.instance) {
    int const position = instance.load();
    if (position <= 0)
      continue;
    std::vector<int> peers;
    std::string op;
    {
      std::lock_guard const lock(names_mutex_);
      peers = names_.peers ? names_.peers(position - 1) : peers;
      op = names_.op ? names_.op(rank_, position - 1) : op;
    }
    std::string waits_for;
    for (int peer : peers)
      waits_for += (waits_for.empty() ? ", waiting for " : ", ") + state_of(peer);
    return fmt::format("no progress for {:.0f} s in {}{} (--timeout allows more)", seconds, op, waits_for);
  }
  return fmt::format("no progress for {:.0f} s while {} (--timeout allows more)", seconds, doing_.load());
}

} // namespace foreplan

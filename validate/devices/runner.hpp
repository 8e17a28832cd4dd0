// Runs one rank's part of a program on this machine: streams are threads, waits are counts of ended ops, the calling thread
// is the host that issues.
#pragma once

#include "program/instances.hpp"
#include "validate/devices/communicators.hpp"
#include "validate/devices/job.hpp"
#include "validate/devices/rank_memory.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace foreplan {

struct RunnerOptions {
  Storage storage = Storage::as_planned;
  TrainingParameters training;
  int threads = 1;     // of a kernel
  bool poison = false; // released memory becomes NaN, as in the interpreter
};

// When one op ran, in seconds of the own clock.
struct OpTimes {
  double arrival = 0; // issued, its stream free, its waits over
  double start = 0;
  double end = 0;
};

class Runner {
public:
  // `world`: the ranks of the plan, in its order. Keeps references to program and job, and runs nothing yet. Collective.
  // Throws std::runtime_error when there is not enough memory.
  Runner(Program const& program, MPI_Comm world, Job& job, RunnerOptions const& options);
  ~Runner(); // collective
  Runner(Runner const&) = delete;
  Runner& operator=(Runner const&) = delete;

  // Data for the next step; then the step itself. An op that fails ends the job. Collective.
  void prepare_step();
  void run_step();

  [[nodiscard]] std::vector<OpTimes> const& times() const { return times_; } // of the last step, by instance
  [[nodiscard]] RankMemory const& memory() const { return memory_; }
  [[nodiscard]] std::vector<Instance> const& instances() const { return memory_.layout.instances; }
  [[nodiscard]] Coordinate coordinate() const { return memory_.coordinate; }
  [[nodiscard]] bool holds_loss() const { return coordinate().pp == stage_of_head(program_.plan); }
  [[nodiscard]] double loss() const; // of the last step; only where it is held

private:
  // So many ops of a stream must have ended.
  struct Wait {
    std::int32_t stream = 0;
    std::int32_t count = 0;
  };
  struct StreamState {
    std::vector<std::int32_t> instances; // in issue order
    alignas(64) std::atomic<std::int32_t> ended{0};
    std::thread thread;
  };

  void find_waits();
  void find_endpoints();
  void start_threads();
  void run_stream(int stream);
  void run_instance(std::int32_t position);
  void execute(BoundInstance const& instance, std::int32_t position);
  void copy_to_or_from_drive(BoundInstance const& instance, Operand const* operands);
  [[nodiscard]] Job::Names names();

  Program const& program_;
  Job& job_;
  RunnerOptions options_;
  std::vector<int> job_ranks_; // of the plan's
  RankMemory memory_;
  std::unique_ptr<Communicators> communicators_;
  std::vector<Endpoint> endpoints_; // by instance
  std::vector<Wait> waits_;
  std::vector<std::int32_t> first_wait_; // by instance, and the end
  std::vector<bool> awaited_;            // by instance: other streams or the host wait for it
  std::array<StreamState, stream_count> streams_;
  std::vector<OpTimes> times_;
  KernelContext context_;
  int step_ = 0;
  // Written by the host, read by the streams: how many instances are issued, and how many steps have begun.
  std::atomic<std::int32_t> issued_{0};
  std::atomic<std::int32_t> begun_{0};
  bool ends_ = false;
};

// "op 'qkv' (layer 3, micro-batch 0, stream compute)"
std::string describe(Instance const& instance);

} // namespace foreplan

#include "validate/devices/run_job.hpp"

#include "io/input_error.hpp"
#include "program/compile.hpp"
#include "validate/devices/job.hpp"
#include "validate/devices/launcher.hpp"
#include "validate/devices/mpi_session.hpp"
#include "validate/devices/program_hash.hpp"
#include "validate/devices/run_output.hpp"
#include "validate/devices/runner.hpp"
#include "validate/devices/write_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <thread>
#include <vector>

#include <sched.h>
#include <unistd.h>

namespace foreplan {
namespace {

// Runs `action` on every rank; if any rank's input cannot be used, all get to know, and the first of them says why.
bool all_accept(Job& job, std::function<void()> const& action) {
  std::string error;
  try {
    action();
  } catch (InputError const& refused) {
    error = refused.what();
  }
  int const own = error.empty() ? job.size() : job.rank();
  int first = 0;
  MPI_Allreduce(&own, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (first == job.rank())
    std::cerr << fmt::format("foreplan-run: {}{}\n", first == 0 ? "" : fmt::format("rank {}: ", first), error);
  return first == job.size();
}

void require_world_size(Job const& job, Plan const& plan) {
  std::optional<Launcher> const started = launcher();
  if (started && started->size != job.size())
    throw InputError(
        fmt::format("{} = {} processes were started by {}, but MPI connects {}: start them by mpirun or by "
                    "srun --mpi=pmix",
                    started->size_variable, started->size, started->name, job.size()));
  if (plan.world_size() != job.size())
    throw InputError(fmt::format(
        "the plan has tp {} * pp {} * dp {} = {} ranks, but {} process{} started: use mpirun -n {}", plan.tp, plan.pp,
        plan.dp, plan.world_size(), job.size(), job.size() == 1 ? " was" : "es were", plan.world_size()));
}

// The ranks that differ from the most common program, of which there is one with rank 0 in doubt.
void require_equal_programs(Job const& job, std::uint64_t own) {
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(job.size()));
  MPI_Allgather(&own, 1, MPI_UINT64_T, hashes.data(), 1, MPI_UINT64_T, MPI_COMM_WORLD);
  auto const count = [&](std::uint64_t hash) { return std::count(hashes.begin(), hashes.end(), hash); };
  std::uint64_t const common = *std::max_element(hashes.begin(), hashes.end(),
                                                 [&](auto a, auto b) { return count(a) < count(b); });
  std::string others;
  for (std::size_t rank = 0; rank < hashes.size(); ++rank)
    if (hashes[rank] != common)
      others += fmt::format("{}{}", others.empty() ? "" : ", ", rank);
  if (!others.empty())
    throw InputError(
        fmt::format("rank {}: another program than the other ranks': its model, plan or build differs", others));
}

// Cores that this process may use.
int own_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// Bound ranks have cores of their own; others share the node's.
RunSetup setup_of(Job const& job, RunRequest const& request) {
  int const own = own_cores();
  bool const bound = own < static_cast<int>(std::thread::hardware_concurrency());
  RunSetup setup{.storage = request.storage, .ranks_of_node = job.ranks_of_node()};
  setup.cores = bound ? own * setup.ranks_of_node : own;
  setup.threads = request.threads > 0 ? request.threads : std::max(1, setup.cores / setup.ranks_of_node);
  return setup;
}

void require_outputs(Job const& job, RunRequest const& request) {
  if (job.rank() != 0)
    return;
  for (auto const& [option, path] : {std::pair{"--json", request.json}, {"--trace", request.trace}})
    if (!path.empty())
      require_writable(path, option);
}

void write_outputs(Program const& program, Run const& run, RunSetup const& setup, RunRequest const& request) {
  std::cout << to_text(program, run, setup) << std::flush;
  if (!request.json.empty())
    write_file(request.json, "--json", [&](std::ostream& out) { write_json(out, program, run, setup); });
  if (!request.trace.empty())
    write_file(request.trace, "--trace", [&](std::ostream& out) { write_trace(out, program, run); });
}

// Throws what ends the job.
void run_accepted(Job& job, RunRequest const& request, Program const& program) {
  RunSetup const setup = setup_of(job, request);
  job.doing("making the initial weights");
  Runner runner(program, MPI_COMM_WORLD, job,
                {.storage = request.storage, .training = {.learning_rate = 1e-3}, .threads = setup.threads});
  Measurement const measurement = measure(runner, MPI_COMM_WORLD, job, request.repeats);
  job.set_timeout(10 * request.timeout); // one rank writes, maybe much, and the others wait
  job.doing("gathering the results");
  Run const run = gather_run(program, runner, measurement, MPI_COMM_WORLD);
  if (job.rank() == 0)
    write_outputs(program, run, setup, request);
  job.doing("waiting for rank 0 to write its files");
  MPI_Barrier(MPI_COMM_WORLD);
}

int run_in(Job& job, std::function<std::optional<RunRequest>()> const& read_request) {
  if (job.rank() != 0)
    std::cout.setstate(std::ios::badbit); // one rank's words are enough
  std::optional<RunRequest> request;
  if (!all_accept(job, [&] { request = read_request(); }))
    return 2;
  if (!request)
    return 0;
  job.set_timeout(request->timeout);
  if (!all_accept(job, [&] { require_world_size(job, request->plan); }) ||
      !all_accept(job, [&] { require_outputs(job, *request); }))
    return 2;
  job.doing("compiling the plan");
  Program const program = compile(request->model, request->plan);
  if (!all_accept(job, [&] { require_equal_programs(job, hash_of(program)); }))
    return 2;
  run_accepted(job, *request, program);
  return 0;
}

} // namespace

int run_job(int argc, char** argv, std::function<std::optional<RunRequest>()> const& read_request) {
  MpiSession const mpi(argc, argv);
  Job job(RunRequest{}.timeout);
  try {
    return run_in(job, read_request);
  } catch (InputError const& error) { // too late for agreement: a file that could not be written after the run
    job.fail(error.what(), 2);
  } catch (std::exception const& error) {
    job.fail(error.what());
  }
}

} // namespace foreplan

// Every plan is the same training step, on real processes: three steps of a plan, each rank a process with a thread a
// stream, communicating over MPI, give the loss and the weights of the model trained on one device.
// Usage: mpirun -n RANKS equivalence [all | pairs | overlap]. Runs every combination of 2 and 4 ranks, and of 8 as few as
// have all pairs of settings; with "all" every one of 8 too, with "pairs" few of each, with "overlap" only those of Domino
// and of overlapped products. Plans of fewer ranks run beside each other.
#include "program/compile.hpp"
#include "tests/equivalence/models.hpp"
#include "tests/equivalence/plans.hpp"
#include "validate/devices/mpi_session.hpp"
#include "validate/devices/results.hpp"

#include <fmt/format.h>

#include <mpi.h>

#include <algorithm>
#include <map>
#include <string_view>

using namespace foreplan;

namespace {

constexpr int steps = 3;
constexpr double tolerance = 1e-10; // as tests/equivalence/equivalence_test.cpp derives it

TrainingParameters training() { return {.learning_rate = 1e-2, .epsilon = 1e-4, .seed = 7}; }

using Pair = std::pair<std::string, std::string>;

std::vector<Pair> pairs_of(EquivalenceCase const& test) {
  std::vector<Pair> pairs;
  std::vector<std::string> const settings = settings_of(test);
  for (std::size_t i = 0; i < settings.size(); ++i)
    for (std::size_t j = i + 1; j < settings.size(); ++j)
      pairs.emplace_back(settings[i], settings[j]);
  return pairs;
}

std::vector<EquivalenceCase> of_ranks(std::vector<EquivalenceCase> cases, int ranks) {
  std::erase_if(cases, [ranks](EquivalenceCase const& test) { return test.plan.world_size() != ranks; });
  return cases;
}

// Each the one that brings most pairs of settings that none before it has, until there are no more.
std::vector<EquivalenceCase> with_all_pairs(std::vector<EquivalenceCase> const& cases) {
  std::map<Pair, std::size_t> numbers;
  std::vector<std::vector<std::size_t>> pairs;
  for (EquivalenceCase const& test : cases) {
    pairs.emplace_back();
    for (Pair const& pair : pairs_of(test))
      pairs.back().push_back(numbers.try_emplace(pair, numbers.size()).first->second);
  }
  std::vector<bool> met(numbers.size(), false);
  std::vector<EquivalenceCase> chosen;
  while (true) {
    std::size_t best = 0, best_gain = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      auto const gain = static_cast<std::size_t>(
          std::count_if(pairs[i].begin(), pairs[i].end(), [&](std::size_t pair) { return !met[pair]; }));
      if (gain > best_gain) {
        best = i;
        best_gain = gain;
      }
    }
    if (best_gain == 0)
      return chosen;
    for (std::size_t pair : pairs[best])
      met[pair] = true;
    chosen.push_back(cases[best]);
  }
}

std::vector<EquivalenceCase> one_rank_cases() {
  std::vector<EquivalenceCase> cases;
  for (Model const& model : {small_gpt(2), small_llama(2)})
    for (std::int64_t micro_batch : {1, 2, 8})
      for (Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        Plan plan = one_device();
        plan.micro_batch = micro_batch;
        plan.recompute = recompute;
        cases.push_back({model, plan});
      }
  return cases;
}

Reference const& reference_for(Model const& model) {
  static std::map<std::string, Reference> references;
  std::string const key = fmt::format("{} {} {}", model.name, model.layers, model.tied_embeddings);
  auto found = references.find(key);
  if (found == references.end())
    found = references.emplace(key, reference_of(compile(model, one_device()), training(), steps)).first;
  return found->second;
}

struct Tally {
  int cases = 0;
  int wrong = 0;
  double largest = 0;
};

Results train(Program const& program, MPI_Comm world, Job& job) {
  Runner runner(program, world, job, {.storage = Storage::fp64, .training = training(), .threads = 1, .poison = true});
  for (int step = 0; step < steps; ++step) {
    runner.prepare_step();
    runner.run_step();
  }
  return gather_results(program, runner, world);
}

// Codes on the wire make another step than one device's: that of the interpreter.
Reference reference_for(EquivalenceCase const& test, Program const& program) {
  Sharding const& sharding = test.plan.sharding;
  bool const quantized = sharding.weight_bits > 0 || sharding.gradient_bits > 0 || test.plan.tp_bits > 0;
  return quantized ? reference_of(program, training(), steps) : reference_for(test.model);
}

void run_case(EquivalenceCase const& test, MPI_Comm world, Job& job, Tally& tally) {
  Program const program = compile(test.model, test.plan);
  Results const results = train(program, world, job);
  int rank = 0;
  MPI_Comm_rank(world, &rank);
  if (rank != 0)
    return;
  double const difference = relative_difference(results.reached, reference_for(test, program));
  ++tally.cases;
  tally.largest = std::max(tally.largest, difference);
  if (difference <= tolerance && results.replica_difference == 0)
    return;
  ++tally.wrong;
  fmt::print(stderr, "{}: difference {}, between replicas {}\n", describe(test), difference,
             results.replica_difference);
}

Tally total(Tally const& own) {
  Tally sum;
  MPI_Reduce(&own.cases, &sum.cases, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Allreduce(&own.wrong, &sum.wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Reduce(&own.largest, &sum.largest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  return sum;
}

// All cases of this many ranks: each group of so many takes its share.
int run_all(std::vector<EquivalenceCase> const& cases, int ranks, Job& job) {
  int const group = job.rank() / ranks;
  MPI_Comm world = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, group, job.rank(), &world);
  double const begin = MPI_Wtime();
  Tally own;
  for (std::size_t i = static_cast<std::size_t>(group); i < cases.size();
       i += static_cast<std::size_t>(job.size() / ranks))
    run_case(cases[i], world, job, own);
  MPI_Comm_free(&world);
  Tally const sum = total(own);
  if (job.rank() == 0)
    fmt::print("{} rank{}: {} plans, {} wrong, largest relative difference {:.1e}, {:.1f} s\n", ranks,
               ranks == 1 ? "" : "s", sum.cases, sum.wrong, sum.largest, MPI_Wtime() - begin);
  return sum.wrong;
}

// The comparison can fail: without its collectives a tensor-parallel plan is another step.
int run_damaged(Job& job) {
  if (job.size() > 8)
    return 0;
  Plan plan = one_device();
  plan.tp = job.size();
  Results const results = train(compile(small_gpt(2), plan, {"insert_collectives"}), MPI_COMM_WORLD, job);
  if (job.rank() != 0 || relative_difference(results.reached, reference_for(small_gpt(2))) > 1e-3)
    return 0;
  fmt::print(stderr, "a plan without its collectives passes for the right step\n");
  return 1;
}

} // namespace

int main(int argc, char** argv) {
  MpiSession const mpi(argc, argv);
  std::string_view const extent = argc > 1 ? argv[1] : "";
  Job job(20);
  std::vector<EquivalenceCase> all = equivalence_cases(1);
  for (EquivalenceCase const& test : context_parallel_cases(1))
    all.push_back(test);
  for (EquivalenceCase const& test : sharding_cases(100))
    if (test.plan.sharding.inner_group > 0)
      all.push_back(test);
  for (EquivalenceCase const& test : quantized_cases())
    all.push_back(test);
  if (extent == "overlap")
    all.clear();
  // Of these the interpreter runs all; a prime step takes some with each setting.
  for (std::vector<EquivalenceCase> const& cases : {domino_cases(1), tp_overlap_cases(1)})
    for (std::size_t i = 0; i < cases.size(); i += 31)
      all.push_back(cases[i]);
  std::vector<EquivalenceCase> const offloaded = offload_cases(300); // with real files for drives
  int wrong = run_all(one_rank_cases(), 1, job);
  for (int ranks = 2; ranks <= job.size() && job.size() % ranks == 0; ranks *= 2) {
    bool const few = extent == "pairs" || (extent != "all" && ranks >= 8);
    std::vector<EquivalenceCase> const cases = of_ranks(all, ranks);
    wrong += run_all(few ? with_all_pairs(cases) : cases, ranks, job);
    if (ranks <= 4)
      wrong += run_all(of_ranks(offloaded, ranks), ranks, job);
  }
  if (job.size() > 1)
    wrong += run_damaged(job);
  return wrong == 0 ? 0 : 1;
}

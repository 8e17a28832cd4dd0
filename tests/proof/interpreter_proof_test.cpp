// Does the interpreter notice what is wrong when nobody has verified the program? One step in up to 20 adversarial orders
// against the same program in program order.
#include "interpreter/difference.hpp"
#include "program/compile.hpp"
#include "program/verifier.hpp"
#include "tests/catch.hpp"
#include "tests/proof/mutations.hpp"
#include "tests/proof/plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>

using namespace foreplan;

namespace {

using Kind = Mutation::Kind;

constexpr int orders = 20;
constexpr TrainingParameters training{.learning_rate = 1e-2, .epsilon = 1e-4, .seed = 7};

bool is_rejected(Program const& program) { return !verify(program, 1).empty(); }

// A program with its right result.
struct Subject {
  Program program;
  Reference reference;

  explicit Subject(ProofCase const& test)
      : program(compile(test.model, test.plan)), reference(reference_of(program, training, steps(test.plan))) {}
  // States that do not come back to the disk are missed only in the next step.
  static int steps(Plan const& plan) { return plan.offload.optimizer == MemoryTier::disk ? 2 : 1; }
  [[nodiscard]] bool notices(Program const& mutant) const { return differs(mutant, reference, training, orders); }
};

void print(std::string const& title, std::vector<std::string> const& names) {
  if (!names.empty())
    std::cout << "    " << title << ":\n";
  for (std::string const& name : names)
    std::cout << "      " << name << "\n";
}

} // namespace

TEST_CASE("the plans of the proof run the same in every order") {
  for (ProofCase const& test : proof_cases()) {
    INFO(test.name);
    Subject const subject(test);
    CHECK_FALSE(subject.notices(subject.program));
  }
}

TEST_CASE("waits that the verifier asks for: without them the step goes wrong in some order", "[slow]") {
  std::size_t needed = 0, noticed = 0;
  for (ProofCase const& test : proof_cases()) {
    Subject const subject(test);
    std::vector<std::string> survivors;
    std::size_t needed_here = 0;
    for (Mutation const& mutation : mutations(subject.program, Kind::delete_wait)) {
      Program const mutant = apply(subject.program, mutation);
      if (!is_rejected(mutant))
        continue; // implied
      ++needed_here;
      if (!subject.notices(mutant))
        survivors.push_back(mutation.name + (is_dead_work(subject.program, mutation) ? " (dead work)" : ""));
    }
    needed += needed_here;
    noticed += needed_here - survivors.size();
    std::cout << fmt::format("  {}: {} of {} missing waits noticed\n", test.name, needed_here - survivors.size(),
                             needed_here);
    print("not", survivors);
  }
  std::cout << fmt::format("  missing waits: {} of {} noticed, {:.1f} %\n", noticed, needed,
                           100.0 * static_cast<double>(noticed) / static_cast<double>(needed));
  CHECK(static_cast<double>(noticed) >= 0.85 * static_cast<double>(needed));
}

TEST_CASE("every missing collective, transfer and op is noticed, unless it is dead work") {
  std::size_t all = 0, noticed = 0, dead_work = 0;
  for (ProofCase const& test : proof_cases()) {
    Subject const subject(test);
    std::vector<std::string> survivors, dead;
    for (Kind const kind : {Kind::delete_communication, Kind::delete_compute})
      for (Mutation const& mutation : mutations(subject.program, kind)) {
        ++all;
        if (subject.notices(apply(subject.program, mutation))) {
          ++noticed;
          continue;
        }
        (is_dead_work(subject.program, mutation) ? dead : survivors).push_back(mutation.name);
      }
    dead_work += dead.size();
    print(test.name + ": dead work", dead);
    INFO(test.name);
    CHECK(survivors == std::vector<std::string>{});
  }
  std::cout << fmt::format("  missing ops: {} of {} noticed, {} are dead work\n", noticed, all, dead_work);
}

TEST_CASE("every wrong amount is found by the verifier, or else noticed by the interpreter", "[slow]") {
  struct Count {
    std::size_t all = 0, verifier = 0, interpreter = 0;
  };
  std::array<Count, mutation_kind_count> counts;
  constexpr Kind amounts[] = {Kind::shift_tensor,      Kind::change_shard_stride, Kind::change_group,
                              Kind::change_collective, Kind::change_scale,        Kind::change_wire_dtype,
                              Kind::shift_parameter};
  for (ProofCase const& test : proof_cases()) {
    Subject const subject(test);
    std::vector<std::string> survivors;
    for (Mutation const& mutation : mutations(subject.program)) {
      if (std::find(std::begin(amounts), std::end(amounts), mutation.kind) == std::end(amounts))
        continue;
      Program const mutant = apply(subject.program, mutation);
      Count& count = counts[static_cast<std::size_t>(mutation.kind)];
      ++count.all;
      if (is_rejected(mutant))
        ++count.verifier;
      else if (subject.notices(mutant))
        ++count.interpreter;
      else
        survivors.push_back(mutation.name);
    }
    INFO(test.name);
    CHECK(survivors == std::vector<std::string>{});
  }
  for (Kind const kind : amounts) {
    Count const& count = counts[static_cast<std::size_t>(kind)];
    std::cout << fmt::format("  {}: {}, found by the verifier {}, else by the interpreter {}\n", to_string(kind),
                             count.all, count.verifier, count.interpreter);
  }
}

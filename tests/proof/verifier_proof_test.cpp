// Does the verifier prove what it says? Every edge of the order and every fault that can be put into a program, over plans
// that use every strategy.
#include "program/compile.hpp"
#include "program/instances.hpp"
#include "program/verifier.hpp"
#include "tests/catch.hpp"
#include "tests/proof/mutations.hpp"
#include "tests/proof/plans.hpp"

#include <fmt/format.h>

#include <iostream>
#include <set>

using namespace foreplan;

namespace {

struct Edges {
  std::size_t rejected = 0, implied = 0, neither = 0;
  std::size_t by_issue = 0; // neither, but of its own accord: see comes_with_issue
};

// Slices of Domino, blocks of overlapped products, hops of a ring and pieces of the loss are worked on side by side, and
// need nothing of each other; nor does the head's forward, where the loss is in pieces, release anything.
bool has_slices(Plan const& plan) {
  return plan.domino_slices > 1 || plan.domino_columns > 1 || plan.tp_overlap || plan.loss_chunks > 1 ||
         (plan.cp > 1 && plan.cp_type == ContextParallel::ring);
}

// Nor do an accumulation of a micro-batch's gradients and the compute op in front of it, or tiles of an offloaded update.
bool has_independent_work(Plan const& plan) {
  return has_slices(plan) || reduces_every_micro_batch(plan) || plan.offload.optimizer != MemoryTier::device ||
         plan.offload.checkpoints;
}

// Order that comes with issue: in a stream, and of a transfer behind what the compute stream held when it was issued (as NCCL
// calls under PyTorch), whether memory was released there or not. Nobody put it in, so nobody can leave it out. The
// host that waits for the norm holds up what does not need it, too.
bool comes_with_issue(Plan const& plan, std::vector<Instance> const& instances, StageOrder::Deletion const& edge) {
  Instance const& instance = instances[static_cast<std::size_t>(edge.instance)];
  if (edge.what != StageOrder::Deletion::What::wait)
    return has_independent_work(plan);
  return edge.what == StageOrder::Deletion::What::wait && has_slices(plan) && is_communication(instance.op->kind) &&
         instances[static_cast<std::size_t>(instance.waits[edge.wait])].op->stream == Stream::compute;
}

// Of all stages; ranks of a stage differ in their shards.
Edges count_edges(Program const& program) {
  Edges edges;
  for (StageProgram const& stage : program.stages)
    for (Coordinate const& at : corner_ranks(program.plan, stage.stage)) {
      StageOrder const order(program, stage, at);
      std::vector<Instance> const instances = instances_of(program, stage);
      for (StageOrder::Deletion const& edge : order.edges())
        switch (order.without(edge)) {
          case StageOrder::Verdict::rejected: ++edges.rejected; break;
          case StageOrder::Verdict::implied: ++edges.implied; break;
          case StageOrder::Verdict::neither:
            ++(comes_with_issue(program.plan, instances, edge) ? edges.by_issue : edges.neither);
            break;
        }
    }
  return edges;
}

struct Found {
  std::size_t all = 0;
  std::vector<std::string> missed;
  [[nodiscard]] std::string text() const { return fmt::format("{} of {}", all - missed.size(), all); }
};

Found count_found(Program const& program, Mutation::Kind kind) {
  Found found;
  for (Mutation const& mutation : mutations(program, kind)) {
    ++found.all;
    if (verify(apply(program, mutation), 1).empty())
      found.missed.push_back(mutation.name);
  }
  return found;
}

void check_all_found(ProofCase const& test, Mutation::Kind kind) {
  Found const found = count_found(compile(test.model, test.plan), kind);
  std::cout << fmt::format("  {}: {} {}\n", test.name, to_string(kind), found.text());
  INFO(test.name);
  CHECK(found.missed == std::vector<std::string>{});
}

} // namespace

TEST_CASE("the plans of the proof verify") {
  REQUIRE(proof_cases().size() >= 12);
  for (ProofCase const& test : proof_cases()) {
    INFO(test.name);
    std::vector<Finding> const findings = verify(compile(test.model, test.plan));
    CHECK((findings.empty() ? std::string() : findings[0].text).empty());
  }
}

TEST_CASE("every wait, stream edge and host sync is needed, or implied by the rest: no third case") {
  for (ProofCase const& test : proof_cases()) {
    Edges const edges = count_edges(compile(test.model, test.plan));
    std::cout << fmt::format("  {}: without each of {} edges: {} rejected, {} implied, {} neither, {} by "
                             "issue alone\n",
                             test.name, edges.rejected + edges.implied + edges.neither + edges.by_issue, edges.rejected,
                             edges.implied, edges.neither, edges.by_issue);
    INFO(test.name);
    CHECK(edges.rejected > 0);
    CHECK(edges.neither == 0);
  }
}

TEST_CASE("every collective, send and receive that is missing is found") {
  for (ProofCase const& test : proof_cases())
    check_all_found(test, Mutation::Kind::delete_communication);
}

TEST_CASE("every release before the last user of its buffer is found") {
  for (ProofCase const& test : proof_cases())
    check_all_found(test, Mutation::Kind::early_release);
}

// Not a bar: an accumulation that is missing leaves everything well formed. The interpreter finds these.
TEST_CASE("missing compute ops: what the verifier says") {
  std::set<std::string> missed;
  std::size_t all = 0, missing = 0;
  for (ProofCase const& test : proof_cases()) {
    Found const found = count_found(compile(test.model, test.plan), Mutation::Kind::delete_compute);
    all += found.all;
    missing += found.missed.size();
    missed.insert(found.missed.begin(), found.missed.end());
  }
  std::cout << fmt::format("  missing compute ops: {} of {} found; not, in some plan:\n", all - missing, all);
  for (std::string const& name : missed)
    std::cout << "    " << name << "\n";
  CHECK(missing < all / 4);
}

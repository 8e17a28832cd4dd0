// "How to add a strategy" (src/README.md), as a test: a step pass that is nowhere in src, compiled into programs, verified
// and executed. Data-parallel gradients are reduced by a reduce-scatter and a gather instead of an all-reduce: the same
// bytes in two halves (a step towards ZeRO, which puts the optimizer between them).
#include "interpreter/difference.hpp"
#include "program/compile.hpp"
#include "program/step_passes/step_passes.hpp"
#include "program/synchronize.hpp"
#include "program/verifier.hpp"
#include "tests/catch.hpp"
#include "tests/proof/mutations.hpp"
#include "tests/proof/plans.hpp"

using namespace foreplan;

namespace {

bool is_gradient_reduction(StageProgram const& stage, Op const& op) {
  return op.kind == OpKind::all_reduce && op.group == Group{Axis::dp, false} && stage[op.reads[0]].elements() > 1;
}

// The pass. A flat buffer's length is a multiple of dp: every rank has a shard of it.
void halve_reductions(Program const& program, StageProgram& stage) {
  if (program.plan.dp == 1)
    return;
  std::vector<Element> result;
  for (Element& element : stage.elements) {
    Op const* op = std::get_if<Op>(&element);
    if (op == nullptr || !is_gradient_reduction(stage, *op)) {
      result.push_back(std::move(element));
      continue;
    }
    TensorId const parts = op->reads[0], sum = op->writes[0];
    TensorId const shard = add_tensor(stage, flat_shard(stage, program.plan, BufferId(stage[sum].buffer.index),
                                                        stage[sum].placement, op->group.axes)); // a shard on each
    for (Op half : {step_op(stage, OpKind::reduce_scatter, op->name + ", scatter", Stream::dp, {parts}, {shard}),
                    step_op(stage, OpKind::all_gather, op->name + ", gather", Stream::dp, {shard}, {sum})}) {
      half.group = op->group;
      result.emplace_back(std::move(half));
    }
  }
  stage.elements = std::move(result);
}

// compile() with the pass in front of "synchronize", which derives waits and releases from what the ops read and write.
Program compile_with(void (*pass)(Program const&, StageProgram&), ProofCase const& test) {
  Program program = compile(test.model, test.plan, {"synchronize"});
  for (StageProgram& stage : program.stages) {
    pass(program, stage);
    synchronize(program, stage);
  }
  return program;
}

std::size_t count(Program const& program, OpKind kind) {
  std::size_t found = 0;
  for (StageProgram const& stage : program.stages)
    for (Element const& element : stage.elements)
      if (Op const* op = std::get_if<Op>(&element))
        found += op->kind == kind ? 1 : 0;
  return found;
}

} // namespace

TEST_CASE("an added step pass: verified, executed, and covered by the proof as it stands") {
  TrainingParameters const training{.learning_rate = 1e-2, .epsilon = 1e-4, .seed = 7};
  std::size_t plans = 0;
  for (ProofCase const& test : proof_cases()) {
    if (test.plan.dp == 1 || test.plan.zero_stage > 0)
      continue;
    ++plans;
    INFO(test.name);
    Program const plain = compile(test.model, test.plan);
    Program const program = compile_with(halve_reductions, test);
    std::size_t const replaced = count(plain, OpKind::all_reduce) - count(program, OpKind::all_reduce);
    CHECK(replaced > 0);
    CHECK(count(program, OpKind::reduce_scatter) == replaced);
    CHECK(verify(program).empty());
    CHECK_FALSE(differs(program, reference_of(plain, training), training)); // the same step, in 20 orders
    for (Mutation::Kind const kind : {Mutation::Kind::delete_communication, Mutation::Kind::early_release})
      for (Mutation const& mutation : mutations(program, kind)) {
        INFO(mutation.name);
        CHECK_FALSE(verify(apply(program, mutation), 1).empty());
      }
  }
  CHECK(plans >= 3);
}

// Without the gather the optimizer would work on sums of which each rank has one shard only.
TEST_CASE("the verifier names what a wrong pass forgot") {
  ProofCase const test = proof_cases()[1];
  REQUIRE(test.plan.dp == 2);
  Program program = compile_with(halve_reductions, test);
  for (Mutation const& mutation : mutations(program, Mutation::Kind::delete_communication)) {
    if (mutation.name.find("gather") == std::string::npos)
      continue;
    std::vector<Finding> const findings = verify(apply(program, mutation));
    REQUIRE_FALSE(findings.empty());
    INFO(findings[0].text);
    CHECK(findings[0].text.find("reads bucket") != std::string::npos);
  }
}

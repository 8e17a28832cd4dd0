// Collectives inside the layers under tensor and sequence parallelism, and their bytes (notes: algorithms.md 6.1).
#include "model/read_model.hpp"
#include "program/compile.hpp"
#include "tests/catch.hpp"
#include "tests/law/program_counts.hpp"

#include <vector>

using namespace foreplan;

namespace {

// Llama-3-8B, 8192 tokens, t = 8: a full tensor of 2 s b h = 67.1 MB.
constexpr int t = 8;
constexpr double whole = 2.0 * 8192 * 4096;

Program program_of(bool sequence_parallel, Recompute recompute = Recompute::none, bool recompute_unused = false) {
  Model model = read_model(std::string(FOREPLAN_ROOT) + "/models/llama-3.1-8b.json");
  model.layers = 1;
  Plan plan;
  plan.tp = t;
  plan.sequence_parallel = sequence_parallel;
  plan.recompute = recompute;
  plan.recompute_unused = recompute_unused;
  plan.sequence_length = 8192;
  plan.global_batch = 1;
  return compile(model, plan);
}

LayerProgram const& layer_of(Program const& program, int layer) {
  return program
      .layer_programs[static_cast<std::size_t>(program.stages[0].layers[static_cast<std::size_t>(layer)].program)];
}

// Whole bytes of each collective of one kind, in issue order.
std::vector<double> collectives(LayerProgram const& layer, std::vector<Op> const& ops, OpKind kind) {
  std::vector<double> bytes;
  for (Op const& op : ops)
    if (op.kind == kind)
      bytes.push_back(whole_bytes(op, [&](TensorId id) -> Tensor const& { return layer[id]; }));
  return bytes;
}

double wire(LayerProgram const& layer, std::vector<Op> const& ops) {
  double bytes = 0;
  for (OpKind kind : {OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter})
    for (double size : collectives(layer, ops, kind))
      bytes += wire_bytes(kind, size, t);
  return bytes;
}

std::vector<double> times(int count, double bytes = whole) {
  return std::vector<double>(static_cast<std::size_t>(count), bytes);
}

} // namespace

// After attention-out and MLP-down forward; the input gradients of QKV and gate-up backward. 2 * 117.4 MB forward.
TEST_CASE("tp: two all-reduces of 2 s b h a block, forward and backward") {
  Program const program = program_of(false);
  LayerProgram const& block = layer_of(program, 1);
  for (auto const* ops : {&block.forward, &block.backward}) {
    CHECK(collectives(block, *ops, OpKind::all_reduce) == times(2));
    CHECK(collectives(block, *ops, OpKind::all_gather).empty());
    CHECK(collectives(block, *ops, OpKind::reduce_scatter).empty());
    CHECK(wire(block, *ops) == Approx(2 * 117.44e6).epsilon(1e-4));
  }
}

// Backward: gathers of the two output gradients, scatters of the two input gradients, and the inputs of the two
// column-parallel linears gathered again for their weight gradients.
TEST_CASE("tp with sp: 2 gathers and 2 scatters forward, 4 and 2 backward") {
  Program const program = program_of(true);
  LayerProgram const& block = layer_of(program, 1);
  CHECK(collectives(block, block.forward, OpKind::all_gather) == times(2));
  CHECK(collectives(block, block.forward, OpKind::reduce_scatter) == times(2));
  CHECK(collectives(block, block.backward, OpKind::all_gather) == times(4));
  CHECK(collectives(block, block.backward, OpKind::reduce_scatter) == times(2));
  CHECK(collectives(block, block.forward, OpKind::all_reduce).empty());
  CHECK(collectives(block, block.backward, OpKind::all_reduce).empty());
  CHECK(wire(block, block.forward) == Approx(2 * 117.44e6).epsilon(1e-4)); // as without sp
}

// Full recompute runs the forward's collectives again: 2 all-reduces, or 2 gathers and 2 scatters (Megatron-LM). Where
// recomputation stops at the last tensor that the backward needs (the MLP's activation), the reduction behind it is left
// out: its result is the block's output, which the next block holds.
TEST_CASE("full recompute adds the forward's collectives to the backward, but for the last where nobody reads it") {
  for (bool const sp : {false, true})
    for (bool const unused : {false, true}) {
      Program const plain = program_of(sp), again = program_of(sp, Recompute::full, unused);
      LayerProgram const& without = layer_of(plain, 1);
      LayerProgram const& with = layer_of(again, 1);
      auto added = [&](OpKind kind) {
        return collectives(with, with.backward, kind).size() - collectives(without, without.backward, kind).size();
      };
      std::size_t const reductions = unused ? 2 : 1;
      CHECK(added(OpKind::all_reduce) == (sp ? 0 : reductions));
      CHECK(added(OpKind::all_gather) == (sp ? 2 : 0));
      CHECK(added(OpKind::reduce_scatter) == (sp ? reductions : 0));
      double const last = wire_bytes(sp ? OpKind::reduce_scatter : OpKind::all_reduce, whole, t);
      CHECK(wire(with, with.backward) ==
            Approx(wire(without, without.backward) + wire(without, without.forward) - (unused ? 0 : last)));
    }
}

// The vocabulary-parallel embedding sums its output; with sp it scatters it, and gathers the gradient.
TEST_CASE("embedding: one collective of 2 s b h forward; backward nothing, or a gather with sp") {
  Program const plain = program_of(false), split = program_of(true);
  LayerProgram const& without = layer_of(plain, 0);
  LayerProgram const& with = layer_of(split, 0);
  CHECK(collectives(without, without.forward, OpKind::all_reduce) == times(1));
  CHECK(wire(without, without.backward) == 0);
  CHECK(collectives(with, with.forward, OpKind::reduce_scatter) == times(1));
  CHECK(collectives(with, with.backward, OpKind::all_gather) == times(1));
}

// Cross-entropy over a cut vocabulary: maximum (4 bytes a token), then target logit and sum of exponentials together (8).
// Backward: one all-reduce of the head's input gradient; with sp its input is gathered forward and again backward.
TEST_CASE("head and loss: 4 s b and 8 s b bytes forward, 2 s b h backward") {
  Program const plain = program_of(false), split = program_of(true);
  LayerProgram const& without = layer_of(plain, 2);
  LayerProgram const& with = layer_of(split, 2);
  std::vector<double> const of_the_loss{4.0 * 8192, 8.0 * 8192};
  CHECK(collectives(without, without.forward, OpKind::all_reduce) == of_the_loss);
  CHECK(collectives(without, without.backward, OpKind::all_reduce) == times(1));
  CHECK(collectives(with, with.forward, OpKind::all_reduce) == of_the_loss);
  CHECK(collectives(with, with.forward, OpKind::all_gather) == times(1));
  CHECK(collectives(with, with.backward, OpKind::all_gather) == times(1));
  CHECK(collectives(with, with.backward, OpKind::reduce_scatter) == times(1));
}

// Norms and other parameters that tp does not cut: with sp each rank saw its tokens only, and their gradients are summed
// over the group once a step, after the data-parallel reduction.
TEST_CASE("sp sums the gradients of uncut parameters over the group once a step") {
  for (bool const sp : {false, true}) {
    Program const program = program_of(sp);
    StageProgram const& stage = program.stages[0];
    double bytes = 0;
    for (Element const& element : stage.elements)
      if (Op const* op = std::get_if<Op>(&element);
          op != nullptr && op->kind == OpKind::all_reduce && op->group.axes == Axis::tp && op->name != "global norm")
        bytes += bytes_of(stage[op->reads[0]]);
    CHECK(bytes == (sp ? 4.0 * 3 * 4096 : 0)); // two norms of the block and the final one, fp32
  }
}

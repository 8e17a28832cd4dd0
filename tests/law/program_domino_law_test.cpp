// What each all-reduce of Domino hides under, and what moves when products overlap their gathers and reductions (notes:
// algorithms.md 6.1, 6.2).
#include "program/amounts.hpp"
#include "program/compile.hpp"
#include "tests/catch.hpp"
#include "tests/law/program_counts.hpp"

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

using namespace foreplan;

namespace {

Model gpt() {
  Model model;
  model.name = "gpt";
  model.layers = 3;
  model.hidden = 32;
  model.heads = model.kv_heads = 4;
  model.head_size = 8;
  model.ffn = 64;
  model.vocabulary = 64;
  model.norm = NormKind::layer_norm;
  model.activation = Activation::gelu;
  model.biases = true;
  return model;
}

Plan domino(Domino form) {
  Plan plan;
  plan.tp = 2;
  plan.sequence_length = 8;
  plan.micro_batch = plan.global_batch = 2;
  plan.domino_slices = 2;
  plan.domino = form;
  return plan;
}

using Hidden = std::map<std::string, std::set<std::string>>; // by reduced tensor: products and attention cores

// Of the second block: what the host issues between a reduction and the op that waits for it, as far as it takes long.
Hidden hidden_under(Plan const& plan) {
  Program const program = compile(gpt(), plan);
  StageProgram const& stage = program.stages[0];
  std::vector<Instance> const instances = instances_of(program, stage);
  Hidden hidden;
  for (std::size_t i = 0; i < instances.size(); ++i) {
    Instance const& reduction = instances[i];
    if (reduction.layer != 2 || reduction.op->kind != OpKind::all_reduce)
      continue;
    std::set<std::string>& under = hidden[reduction.op->name];
    for (std::size_t j = i + 1; j < instances.size(); ++j) {
      auto const& waits = instances[j].waits;
      bool const ends = std::any_of(waits.begin(), waits.end(), [&](std::int32_t wait) { // for this or one behind it
        return wait >= static_cast<std::int32_t>(i) &&
               instances[static_cast<std::size_t>(wait)].op->stream == Stream::tp;
      });
      if (ends)
        break;
      OpKind const kind = instances[j].op->kind;
      bool const is_long = kernel_class(kind) == KernelClass::gemm || kernel_class(kind) == KernelClass::attention;
      if (is_long)
        under.insert(instances[j].op->name + (instances[j].layer == 2 ? "" : ", another layer"));
    }
  }
  return hidden;
}

std::set<std::string> names(std::vector<std::string> const& list) { return {list.begin(), list.end()}; }

} // namespace

// The rows of the table in 6.2, forward and backward; slices 0 and 1. "backward of x" is its two products.
TEST_CASE("Domino, released inter-layer: what each all-reduce hides under") {
  Hidden const hidden = hidden_under(domino(Domino::inter_layer));
  REQUIRE(hidden.size() == 8);
  CHECK(hidden.at("reduce out output, slice 0") == names({"qkv, slice 1", "attention, slice 1"}));
  CHECK(hidden.at("reduce out output, slice 1") == names({"fc1, slice 0"}));
  CHECK(hidden.at("reduce fc2 output, slice 0") == names({"fc1, slice 1"}));
  CHECK(hidden.at("reduce fc2 output, slice 1") ==
        names({"qkv, slice 0, another layer", "attention, slice 0, another layer"}));
  CHECK(hidden.at("reduce d norm 2, slice 1") == names({"fc1 dW, slice 1", "fc2 dX, slice 0", "fc2 dW, slice 0"}));
  CHECK(hidden.at("reduce d norm 2, slice 0") == names({"fc1 dW, slice 0", "out dX, slice 1", "out dW, slice 1"}));
  CHECK(hidden.at("reduce d norm 1, slice 1") == names({"qkv dW, slice 1", "out dX, slice 0", "out dW, slice 0"}));
  CHECK(hidden.at("reduce d norm 1, slice 0") ==
        names({"qkv dW, slice 0", "fc2 dX, slice 1, another layer", "fc2 dW, slice 1, another layer"}));
}

TEST_CASE("Domino, released intra-layer: a layer's last reductions are exposed") {
  Hidden const hidden = hidden_under(domino(Domino::intra_layer));
  REQUIRE(hidden.size() == 8);
  CHECK(hidden.at("reduce out output, slice 0") == names({"qkv, slice 1", "attention, slice 1", "out, slice 1"}));
  CHECK(hidden.at("reduce out output, slice 1") == names({"fc1, slice 0"}));
  CHECK(hidden.at("reduce fc2 output, slice 0") == names({"fc1, slice 1", "fc2, slice 1"}));
  CHECK(hidden.at("reduce fc2 output, slice 1").empty());
  CHECK(hidden.at("reduce d norm 2, slice 1") == names({"fc1 dW, slice 1", "fc2 dX, slice 0", "fc2 dW, slice 0"}));
  CHECK(hidden.at("reduce d norm 2, slice 0") == names({"fc1 dW, slice 0"}));
  CHECK(hidden.at("reduce d norm 1, slice 1") == names({"qkv dW, slice 1"}));
  CHECK(hidden.at("reduce d norm 1, slice 0") == names({"qkv dW, slice 0"}));
}

// Figures 9 and 10 of the blog, an upper bound: every reduction has a whole half of the other slice, but for the
// backward's last, of which the next layer's MLP is it.
TEST_CASE("Domino, the paper's form") {
  Hidden const hidden = hidden_under(domino(Domino::paper));
  REQUIRE(hidden.size() == 8);
  CHECK(hidden.at("reduce out output, slice 0") == names({"qkv, slice 1", "attention, slice 1", "out, slice 1"}));
  CHECK(hidden.at("reduce out output, slice 1") == names({"fc1, slice 0", "fc2, slice 0"}));
  CHECK(hidden.at("reduce fc2 output, slice 0") == names({"fc1, slice 1", "fc2, slice 1"}));
  CHECK(hidden.at("reduce fc2 output, slice 1") ==
        names({"qkv, slice 0, another layer", "attention, slice 0, another layer", "out, slice 0, another layer"}));
  CHECK(hidden.at("reduce d norm 1, slice 0").contains("fc1 dX, slice 1, another layer"));
}

// Y1 = X A B1 is reduced while X A B2 runs; the last slice is exposed, and as many bytes move.
TEST_CASE("Domino's column split: c reductions of 1 / c of the columns") {
  Plan plan = domino(Domino::paper);
  plan.domino_slices = 1;
  plan.domino_columns = 4;
  Hidden const hidden = hidden_under(plan);
  CHECK(hidden.at("reduce out output by columns, columns 0") ==
        names({"out, columns 1", "out, columns 2", "out, columns 3"}));
  CHECK(hidden.at("reduce fc2 output by columns, columns 2") == names({"fc2, columns 3"}));
  CHECK(hidden.at("reduce fc2 output by columns, columns 3").empty());
  Program const program = compile(gpt(), plan);
  LayerProgram const& block = program.layer_programs[1];
  double bytes = 0;
  for (Op const& op : block.forward)
    if (op.kind == OpKind::all_reduce)
      bytes += bytes_of(block[op.reads[0]]);
  CHECK(bytes == 2 * 2.0 * 2 * 8 * 32); // two of 2 s b h
}

// A gather over t ranks is t - 1 blocks passed on, each 1 / t of the whole; forward in front of QKV and fc1, backward
// of the two output gradients. Inputs gathered again for weight gradients stay whole, under the input gradient; so do
// the scatters of input gradients, under the weight gradient.
TEST_CASE("tp overlap moves what gathers and scatters move") {
  constexpr int t = 4;
  Plan plan;
  plan.tp = t;
  plan.sequence_parallel = plan.tp_overlap = true;
  plan.sequence_length = 8;
  plan.micro_batch = plan.global_batch = 2;
  Program const program = compile(gpt(), plan);
  LayerProgram const& block = program.layer_programs[1];
  double const whole = 2.0 * 2 * 8 * 32;
  auto const sum = [&](std::vector<Op> const& ops, OpKind kind) {
    double bytes = 0;
    for (Op const& op : ops)
      if (op.kind == kind)
        bytes += bytes_of(block[op.reads[0]]);
    return bytes;
  };
  CHECK(sum(block.forward, OpKind::ring_shift) == 2 * (t - 1) * whole / t);
  CHECK(sum(block.backward, OpKind::ring_shift) == 2 * (t - 1) * whole / t);
  CHECK(sum(block.forward, OpKind::reduce_scatter) == 2 * whole); // in 4 slices of columns each
  CHECK(sum(block.backward, OpKind::reduce_scatter) == 2 * whole);
  CHECK(sum(block.backward, OpKind::all_gather) == 2 * whole / t);
  CHECK(sum(block.forward, OpKind::all_gather) == 0);
}

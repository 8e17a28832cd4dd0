// Placements, axis by axis: what follows from what is read, and what no rule covers.
#include "program/placement_rules.hpp"
#include "tests/catch.hpp"

using namespace foreplan;

namespace {

// Written placements along tp of an op with these operands, all of shape [tokens, width].
std::optional<std::vector<AxisPlacement>> written(OpKind kind, std::vector<AxisPlacement> const& reads,
                                                  std::vector<AxisPlacement> const& declared, bool transposed = false) {
  std::vector<Tensor> tensors;
  for (auto const* placements : {&reads, &declared})
    for (AxisPlacement placement : *placements) {
      Tensor tensor;
      tensor.shape = {8, 4};
      tensor.placement[Axis::tp] = placement;
      tensors.push_back(tensor);
    }
  Operands operands;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    (i < reads.size() ? operands.reads : operands.writes).push_back(&tensors[i]);
  Op op;
  op.kind = kind;
  op.transposed = transposed;
  op.group = {Axis::tp, false};
  return written_placements(op, operands, Axis::tp);
}

using Placements = std::vector<AxisPlacement>;

} // namespace

// Y = X W. W cut by columns: Y is. W cut by rows (with X's features): Y is a sum. X cut by tokens: Y is.
TEST_CASE("placements of a linear forward") {
  OpKind const kind = OpKind::linear_forward;
  CHECK(written(kind, {replicated, replicated}, {replicated}) == Placements{replicated});
  CHECK(written(kind, {replicated, sharded(1)}, {sharded(1)}) == Placements{sharded(1)});
  CHECK(written(kind, {sharded(1), sharded(0)}, {replicated}) == Placements{partial_sum});
  CHECK(written(kind, {sharded(0), replicated}, {sharded(0)}) == Placements{sharded(0)});
  CHECK_FALSE(written(kind, {sharded(0), sharded(1)}, {sharded(1)}));   // tokens must be gathered first
  CHECK_FALSE(written(kind, {replicated, sharded(0)}, {replicated}));   // half of the inputs' rows, all of the inputs
  CHECK_FALSE(written(kind, {partial_sum, replicated}, {partial_sum})); // a sum is taken before it is used
  // Stored (out, in): a cut of dimension 0 is a cut of the outputs.
  CHECK(written(kind, {replicated, sharded(0)}, {sharded(1)}, true) == Placements{sharded(1)});
}

// A bias added on every rank to a part of a sum would be added tp times.
TEST_CASE("no bias on a partial sum") {
  CHECK_FALSE(written(OpKind::linear_forward, {sharded(1), sharded(0), replicated}, {partial_sum}));
}

// dX = dY W^T: the mirror image. dW = X^T dY: a sum where tokens are cut.
TEST_CASE("placements of a linear backward") {
  CHECK(written(OpKind::linear_input_gradient, {sharded(1), sharded(1)}, {replicated}) == Placements{partial_sum});
  CHECK(written(OpKind::linear_input_gradient, {replicated, sharded(0)}, {sharded(1)}) == Placements{sharded(1)});
  CHECK(written(OpKind::linear_weight_gradient, {sharded(0), sharded(0), partial_sum}, {partial_sum}) ==
        Placements{partial_sum});
  CHECK(written(OpKind::linear_weight_gradient, {sharded(1), replicated, sharded(0)}, {sharded(0)}) ==
        Placements{sharded(0)});
  CHECK(written(OpKind::linear_weight_gradient, {replicated, sharded(1), sharded(1)}, {sharded(1)}) ==
        Placements{sharded(1)});
  CHECK_FALSE(written(OpKind::linear_weight_gradient, {sharded(0), replicated, partial_sum}, {partial_sum}));
}

TEST_CASE("element-wise ops keep a placement, and take no sums") {
  CHECK(written(OpKind::add, {sharded(0), sharded(0)}, {sharded(0)}) == Placements{sharded(0)});
  CHECK_FALSE(written(OpKind::add, {sharded(0), replicated}, {sharded(0)}));
  CHECK_FALSE(written(OpKind::gelu_forward, {partial_sum}, {partial_sum}));
}

TEST_CASE("placements of collectives") {
  CHECK(written(OpKind::all_reduce, {partial_sum}, {replicated}) == Placements{replicated});
  CHECK(written(OpKind::all_reduce, {partial_max}, {replicated}) == Placements{replicated});
  CHECK_FALSE(written(OpKind::all_reduce, {replicated}, {replicated})); // would multiply by tp
  CHECK(written(OpKind::reduce_scatter, {partial_sum}, {sharded(0)}) == Placements{sharded(0)});
  CHECK_FALSE(written(OpKind::reduce_scatter, {partial_max}, {sharded(0)}));
  CHECK(written(OpKind::all_gather, {sharded(0)}, {replicated}) == Placements{replicated});
  CHECK_FALSE(written(OpKind::all_gather, {replicated}, {replicated}));
}

// Codes of the terms of a sum are exchanged; only a kernel adds them up.
TEST_CASE("placements of codes") {
  CHECK(written(OpKind::quantize, {partial_sum}, {partial_sum, partial_sum}) == Placements{partial_sum, partial_sum});
  CHECK(written(OpKind::all_to_all, {partial_sum}, {sum_terms}) == Placements{sum_terms});
  CHECK(written(OpKind::dequantize, {sum_terms, sum_terms}, {sharded(0)}) == Placements{sharded(0)});
  CHECK(written(OpKind::requantize, {sum_terms, sum_terms}, {sharded(0), sharded(0)}) ==
        Placements{sharded(0), sharded(0)});
  CHECK(written(OpKind::dequantize, {replicated, replicated}, {replicated}) == Placements{replicated});
  CHECK_FALSE(written(OpKind::dequantize, {sum_terms, partial_sum}, {sharded(0)})); // scales of before the exchange
  CHECK_FALSE(written(OpKind::all_reduce, {sum_terms}, {replicated}));
  CHECK_FALSE(written(OpKind::add, {sum_terms, sum_terms}, {sum_terms}));
}

// Ranks hold parts of the vocabulary: maximum and sums over it are partial; the loss needs them whole.
TEST_CASE("cross-entropy over a cut vocabulary") {
  CHECK(written(OpKind::loss_maximum, {sharded(1)}, {replicated}) == Placements{partial_max});
  CHECK(written(OpKind::loss_sums, {sharded(1), replicated, replicated}, {replicated}) == Placements{partial_sum});
  CHECK_FALSE(written(OpKind::loss_sums, {sharded(1), replicated, partial_max}, {partial_sum}));
  CHECK_FALSE(written(OpKind::loss_forward, {partial_sum, replicated}, {replicated}));
  CHECK(written(OpKind::loss_forward, {sharded(0), partial_sum}, {partial_sum}) == Placements{partial_sum});
}

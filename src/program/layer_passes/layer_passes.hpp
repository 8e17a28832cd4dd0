// Layer passes: each rewrites one layer program; together they make it what one rank of a plan runs. In the order of
// compile.cpp. A pass that a plan does not use leaves the layer as it is.
#pragma once

#include "program/program.hpp"

namespace foreplan {

// Cuts what the layer's builder marked as splittable: heads, MLP width, vocabulary.
void tensor_parallel(LayerProgram& layer, Plan const& plan);
// Cuts the tokens of the tensors outside the tensor-parallel regions.
void sequence_parallel(LayerProgram& layer, Plan const& plan);
// Shares out the tokens of each sequence among the ranks of the cp group: attention fetches those of the others.
void context_parallel(LayerProgram& layer, Plan const& plan);
// Cuts a micro-batch into slices whose reductions run under each other's work.
void domino(LayerProgram& layer, Plan const& plan);
// Cuts the outputs of a block's second products by columns, so that one slice is reduced under the product of the next.
void split_columns(LayerProgram& layer, Plan const& plan);
// Puts in the collectives that the placements ask for: a sum read as a whole, a shard read as a whole.
void insert_collectives(LayerProgram& layer, Plan const& plan);
// Cuts products of gathered tokens by the rank that these come from, so that blocks pass round under the products.
void overlap_gathers(LayerProgram& layer, Plan const& plan);
// Puts codes on the wire of the sums over tp.
void quantize_reductions(LayerProgram& layer, Plan const& plan);
// Cuts the head's product and the loss into pieces of rows, whose logits live one after the other.
void loss_chunks(LayerProgram& layer, Plan const& plan);
// Weight gradients are written into tensors of their own, and added to the accumulated ones by a kernel of its own.
void separate_accumulation(LayerProgram& layer, Plan const& plan);
// Rebuilds dropped activations in the backward. `what` is this layer's: not all layers of a plan need be recomputed.
void recompute(LayerProgram& layer, Plan const& plan, Recompute what);

// Moves the weight gradients out of the backward, for schedules that run them by themselves.
void split_backward(LayerProgram& layer, Plan const& plan);

} // namespace foreplan

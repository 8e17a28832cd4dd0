// The three kinds of layers as one device runs them: no parallelism, no recompute, everything on the compute stream.
// Layer passes rewrite these. Op lists: Megatron's (notes: algorithms.md 12.1, 12.2), one op a kernel.
#pragma once

#include "program/program.hpp"

namespace foreplan {

LayerProgram embedding_layer(Model const& model, Plan const& plan);
LayerProgram block_layer(Model const& model, Plan const& plan);
LayerProgram head_layer(Model const& model, Plan const& plan); // final norm, head, loss

} // namespace foreplan

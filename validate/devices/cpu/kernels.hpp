// The families of CPU kernels, one file each; operands are positional as in OpKind.
#pragma once

#include "validate/devices/cpu/values.hpp"

namespace foreplan::cpu {

// embedding.cpp
void embedding_forward(Operands reads, Operands writes, KernelContext const& context);
void embedding_backward(Operands reads, Operands writes, KernelContext const& context);
void add_positions(Op const& op, Operands reads, Operands writes, KernelContext const& context);
void position_gradient(Op const& op, Operands reads, Operands writes, KernelContext const& context);

// cross_entropy.cpp
void loss_maximum(Operands reads, Operands writes);
void loss_sums(Operands reads, Operands writes, KernelContext const& context);
void loss_forward(Op const& op, Operands reads, Operands writes);
void loss_backward(Op const& op, Operands reads, Operands writes, KernelContext const& context);

// norms.cpp
void norm_forward(Operands reads, Operands writes);
void norm_backward(Operands reads, Operands writes);

// linears.cpp
void linear_forward(Op const& op, Operands reads, Operands writes);
void linear_input_gradient(Op const& op, Operands reads, Operands writes);
void linear_weight_gradient(Op const& op, Operands reads, Operands writes);
void bias_gradient(Operand const& dy, Operand const& dbias); // dbias += column sums

// rope.cpp; direction -1: the inverse rotation
void rope(Op const& op, Operands reads, Operands writes, KernelContext const& context, float direction);

// attention.cpp: tiles, the s x s scores are never stored
void attention_forward(Op const& op, Operands reads, Operands writes);
void attention_backward(Op const& op, Operands reads, Operands writes);

// unfused_attention.cpp
void attention_scores(Op const& op, Operands reads, Operands writes);
void attention_softmax(Op const& op, Operands reads, Operands writes);
void attention_context(Op const& op, Operands reads, Operands writes);
void attention_context_backward(Op const& op, Operands reads, Operands writes);
void attention_softmax_backward(Op const& op, Operands reads, Operands writes);
void attention_scores_backward(Op const& op, Operands reads, Operands writes);

// activations.cpp
void gelu_forward(Operands reads, Operands writes);
void gelu_backward(Operands reads, Operands writes);
void swiglu_forward(Operands reads, Operands writes);
void swiglu_backward(Operands reads, Operands writes);

// elementwise.cpp
void add(Operands reads, Operands writes);
void bias_add(Operands reads, Operands writes);
void dropout_forward(Operands reads, Operands writes);
void dropout_backward(Operands reads, Operands writes);
void fill_ones(Operand const& to);
void zero_fill(Operand const& to);
void cast(Operand const& from, Operand const& to);

// optimizer.cpp
void norm_squared(Op const& op, Operands reads, Operands writes);
void adam(Op const& op, Operands reads, Operands writes, KernelContext const& context);

} // namespace foreplan::cpu

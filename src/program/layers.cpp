#include "program/layers.hpp"

#include "program/layer_builder.hpp"

#include <cmath>
#include <optional>

namespace foreplan {

namespace {

using Scope = BufferRef::Scope;
using Cut = LayerBuilder::Cut;

// What a norm or a linear adds to a layer, and how its ops are written down.
struct Norm {
  ParameterTensors weight;
  std::optional<ParameterTensors> bias;
};

struct Linear {
  ParameterTensors weight;
  std::optional<ParameterTensors> bias; // added by the product's epilogue
  bool transposed = false;              // stored (out, in)
};

Norm make_norm(LayerBuilder& layer, Model const& model, std::string const& name) {
  Norm norm{layer.parameter(name + " weight", {model.hidden}, -1), std::nullopt};
  if (model.norm == NormKind::layer_norm)
    norm.bias = layer.parameter(name + " bias", {model.hidden}, -1);
  return norm;
}

// PyTorch's functions around a norm: to fp32, `inner` of them there, back to the parameters' dtype, and one more.
TensorId eager_passes(LayerBuilder& layer, Plan const& plan, std::string const& name, TensorId x, Part part,
                      int inner) {
  TensorId wide = layer.copy(x, part, name + " to fp32", DType::fp32);
  for (int i = 0; i < inner; ++i)
    wide = layer.copy(wide, part, name + " in fp32");
  return layer.copy(layer.copy(wide, part, name + " from fp32", plan.parameter_dtype), part, name + " eager");
}

// Whether a norm is x.float(), its square, mean and root, a product, a cast and the product with the weight, each a kernel
// (RMSNorm of torchtitan and transformers; aten::rms_norm was no kernel of its own before PyTorch 2.8). Of an element that is
// 18 times 2 bytes forward, and 39 backward, 2 and 3 of which the norm's own op stands for.
bool is_eager_norm(Model const& model, Plan const& plan) {
  return plan.execution.eager_norms && model.norm == NormKind::rms_norm;
}

void norm_forward(LayerBuilder& layer, Model const& model, Plan const& plan, Norm const& norm, std::string const& name,
                  TensorId x, TensorId y) {
  if (is_eager_norm(model, plan)) // 3 + 2 * 4 + 3 + 2
    x = eager_passes(layer, plan, name, x, Part::forward, 2);
  std::vector<TensorId> reads{x, norm.weight.value};
  if (norm.bias)
    reads.push_back(norm.bias->value);
  layer.forward(OpKind::norm_forward, name, reads, {y});
}

void norm_backward(LayerBuilder& layer, Model const& model, Plan const& plan, Norm const& norm, std::string const& name,
                   TensorId dy, TensorId x, std::optional<TensorId> dresidual, TensorId dx) {
  if (is_eager_norm(model, plan)) // 3 + 7 * 4 + 3 + 2
    dy = eager_passes(layer, plan, "d " + name, dy, Part::input_gradient, 7);
  std::vector<TensorId> reads{dy, x, norm.weight.value};
  std::vector<TensorId> writes{dx, norm.weight.gradient};
  if (dresidual)
    reads.push_back(*dresidual);
  reads.push_back(norm.weight.gradient);
  if (norm.bias) {
    reads.push_back(norm.bias->gradient);
    writes.push_back(norm.bias->gradient);
  }
  layer.input_gradient(OpKind::norm_backward, name + " backward", reads, writes);
}

void linear_forward(LayerBuilder& layer, Linear const& linear, std::string const& name, TensorId x, TensorId y) {
  std::vector<TensorId> reads{x, linear.weight.value};
  if (linear.bias)
    reads.push_back(linear.bias->value);
  layer.forward(OpKind::linear_forward, name, reads, {y}).transposed = linear.transposed;
}

void linear_backward(LayerBuilder& layer, Linear const& linear, std::string const& name, TensorId x, TensorId dy,
                     TensorId dx) {
  layer.input_gradient(OpKind::linear_input_gradient, name + " dX", {dy, linear.weight.value}, {dx}).transposed =
      linear.transposed;
  std::vector<TensorId> gradients{linear.weight.gradient};
  if (linear.bias)
    gradients.push_back(linear.bias->gradient);
  layer.weight_gradient(OpKind::linear_weight_gradient, name + " dW", {x, dy}, gradients).transposed =
      linear.transposed;
}

// Eager rotary positions: queries and keys to fp32, turned there (as complex numbers, or halves), and back.
TensorId in_fp32_and_back(LayerBuilder& layer, Plan const& plan, std::string const& name, TensorId x, Part part) {
  return layer.copy(layer.copy(x, part, name + " to fp32", DType::fp32), part, name + " from fp32",
                    plan.parameter_dtype);
}

// The end of a branch: projection + [bias] [dropout] + residual. The bias is added here, after the sum over the
// tensor-parallel group, so that it is added once.
struct Join {
  std::optional<ParameterTensors> bias;
  std::optional<TensorId> mask;
};

Join make_join(LayerBuilder& layer, Model const& model, Plan const& plan, std::string const& name) {
  Join join;
  if (model.biases)
    join.bias = layer.parameter(name + " bias", {model.hidden}, -1);
  if (model.dropout)
    join.mask = layer.local(name + " dropout mask", {plan.tokens(), model.hidden}, DType::uint8,
                            LayerBuilder::residual);
  return join;
}

void join_forward(LayerBuilder& layer, Model const& model, Plan const& plan, Join const& join, std::string const& name,
                  TensorId x, TensorId residual, TensorId y) {
  std::vector<TensorId> writes{y};
  if (join.bias) {
    if (join.mask)
      writes.push_back(*join.mask);
    layer.forward(OpKind::bias_add, name + " residual", {x, join.bias->value, residual}, writes);
    return;
  }
  if (join.mask) {
    TensorId const dropped = layer.local(name + " dropped", {plan.tokens(), model.hidden}, plan.parameter_dtype,
                                         LayerBuilder::residual);
    layer.forward(OpKind::dropout_forward, name + " dropout", {x}, {dropped, *join.mask});
    x = dropped;
  }
  layer.forward(OpKind::add, name + " residual", {x, residual}, writes);
}

// Returns the gradient of the projection's output.
TensorId join_backward(LayerBuilder& layer, Model const& model, Plan const& plan, Join const& join,
                       std::string const& name, TensorId dy) {
  TensorId dx = dy;
  if (join.mask) {
    dx = layer.local("d " + name + " dropped", {plan.tokens(), model.hidden}, plan.parameter_dtype,
                     LayerBuilder::residual);
    layer.input_gradient(OpKind::dropout_backward, name + " dropout backward", {dy, *join.mask}, {dx});
  }
  if (join.bias)
    layer.weight_gradient(OpKind::bias_gradient, name + " bias gradient", {dx}, {join.bias->gradient});
  return dx;
}

// Tensors of the attention core that its backward needs.
struct AttentionCore {
  TensorId qkv, o;
  TensorId lse;                    // fused
  TensorId probabilities, dropped; // unfused
  std::optional<TensorId> mask;    // unfused, with dropout
};

AttentionCore attention_forward(LayerBuilder& layer, Model const& model, Plan const& plan, TensorId qkv, TensorId o) {
  AttentionCore core{.qkv = qkv, .o = o, .lse = {}, .probabilities = {}, .dropped = {}, .mask = {}};
  if (plan.attention == Attention::fused) {
    core.lse = layer.local("log-sum-exp", {plan.tokens(), model.heads}, DType::fp32, LayerBuilder::along(1));
    Op& attention = layer.forward(OpKind::attention_forward, "attention", {qkv}, {o, core.lse});
    attention.core_attention = true;
    attention.portable = plan.execution.portable_attention;
    attention.triton = plan.execution.triton_attention;
    return core;
  }
  std::vector<std::int64_t> const shape{plan.micro_batch, model.heads, plan.sequence_length, plan.sequence_length};
  Cut const by_head = LayerBuilder::along(1);
  TensorId const scores = layer.local("scores", shape, plan.parameter_dtype, by_head);
  core.probabilities = layer.local("probabilities", shape, plan.parameter_dtype, by_head);
  core.dropped = core.probabilities;
  layer.forward(OpKind::attention_scores, "scores", {qkv}, {scores}).core_attention = true;
  Op& softmax = layer.forward(OpKind::attention_softmax, "softmax", {scores}, {core.probabilities});
  softmax.core_attention = true;
  softmax.scale = 1 / std::sqrt(static_cast<double>(model.head_size));
  if (model.dropout) {
    core.dropped = layer.local("dropped probabilities", shape, plan.parameter_dtype, by_head);
    core.mask = layer.local("attention dropout mask", shape, DType::uint8, by_head);
    layer.forward(OpKind::dropout_forward, "attention dropout", {core.probabilities}, {core.dropped, *core.mask})
        .core_attention = true;
  }
  layer.forward(OpKind::attention_context, "context", {core.dropped, qkv}, {o}).core_attention = true;
  return core;
}

void attention_backward(LayerBuilder& layer, Model const& model, Plan const& plan, AttentionCore const& core,
                        TensorId d_o, TensorId dqkv) {
  if (plan.attention == Attention::fused) {
    Op& backward = layer.input_gradient(OpKind::attention_backward, "attention backward",
                                        {core.qkv, core.o, core.lse, d_o}, {dqkv});
    backward.portable = plan.execution.portable_attention;
    backward.triton = plan.execution.triton_attention;
    return;
  }
  std::vector<std::int64_t> const shape{plan.micro_batch, model.heads, plan.sequence_length, plan.sequence_length};
  Cut const by_head = LayerBuilder::along(1);
  TensorId const ddropped = layer.local("d dropped probabilities", shape, plan.parameter_dtype, by_head);
  TensorId dprobabilities = ddropped;
  layer.input_gradient(OpKind::attention_context_backward, "context backward", {core.dropped, core.qkv, d_o},
                       {ddropped, dqkv});
  if (core.mask) {
    dprobabilities = layer.local("d probabilities", shape, plan.parameter_dtype, by_head);
    layer.input_gradient(OpKind::dropout_backward, "attention dropout backward", {ddropped, *core.mask},
                         {dprobabilities});
  }
  TensorId const dscores = layer.local("d scores", shape, plan.parameter_dtype, by_head);
  layer
      .input_gradient(OpKind::attention_softmax_backward, "softmax backward", {core.probabilities, dprobabilities},
                      {dscores})
      .scale = 1 / std::sqrt(static_cast<double>(model.head_size));
  layer.input_gradient(OpKind::attention_scores_backward, "scores backward", {core.qkv, dscores, dqkv}, {dqkv});
}

} // namespace

LayerProgram embedding_layer(Model const& model, Plan const& plan) {
  LayerBuilder layer("embedding", LayerKind::embedding, plan);
  std::vector<std::int64_t> const hidden{plan.tokens(), model.hidden};
  DType const dtype = plan.parameter_dtype;
  TensorId const tokens = layer.ids("tokens", Scope::tokens, plan.tokens());
  TensorId const y = layer.boundary("embedded", Scope::output, hidden);
  TensorId const dy = layer.boundary("d embedded", Scope::output_gradient, hidden);
  ParameterTensors const table = layer.parameter("word embedding", {model.vocabulary, model.hidden}, 0,
                                                 model.tied_embeddings);

  // Each of the three ops below writes the layer's output if it is the last.
  bool const learned = model.positions == Positions::learned;
  TensorId const words = learned || model.dropout ? layer.local("words", hidden, dtype, LayerBuilder::residual) : y;
  layer.forward(OpKind::embedding_forward, "embedding", {tokens, table.value}, {words});
  TensorId positioned = words;
  std::optional<ParameterTensors> positions;
  if (learned) {
    positions = layer.parameter("position embedding", {model.max_positions, model.hidden}, -1);
    positioned = model.dropout ? layer.local("positioned", hidden, dtype, LayerBuilder::residual) : y;
    layer.forward(OpKind::add_positions, "positions", {words, positions->value}, {positioned});
  }
  TensorId dx = dy;
  if (model.dropout) {
    TensorId const mask = layer.local("embedding dropout mask", hidden, DType::uint8, LayerBuilder::residual);
    layer.forward(OpKind::dropout_forward, "embedding dropout", {positioned}, {y, mask});
    dx = layer.local("d positioned", hidden, dtype, LayerBuilder::residual);
    layer.input_gradient(OpKind::dropout_backward, "embedding dropout backward", {dy, mask}, {dx});
  }
  if (positions)
    layer.weight_gradient(OpKind::position_gradient, "position gradient", {dx}, {positions->gradient});
  layer.weight_gradient(OpKind::embedding_backward, "embedding backward", {tokens, dx}, {table.gradient});
  return layer.take();
}

LayerProgram block_layer(Model const& model, Plan const& plan) {
  LayerBuilder layer("block", LayerKind::block, plan);
  std::int64_t const T = plan.tokens(), h = model.hidden, g = model.kv_heads, q = model.heads / g, d = model.head_size,
                     f = model.ffn;
  DType const dtype = plan.parameter_dtype;
  bool const gated = is_gated(model.activation);
  bool const eager = plan.execution.eager_activations;
  bool const copies = plan.execution.eager_layout;
  bool const joins = copies && plan.attention == Attention::fused; // unfused products take strided heads
  Cut const residual = LayerBuilder::residual;
  auto bias = [&](bool exists, std::string const& name, std::vector<std::int64_t> shape, int split) {
    return exists ? std::optional(layer.parameter(name, std::move(shape), split)) : std::nullopt;
  };
  std::vector<std::int64_t> const first_shape = gated ? std::vector<std::int64_t>{h, 2, f}
                                                      : std::vector<std::int64_t>{h, f};
  std::vector<std::int64_t> const first_out = gated ? std::vector<std::int64_t>{T, 2, f}
                                                    : std::vector<std::int64_t>{T, f};
  int const first_split = gated ? 2 : 1;

  // Parameters, in forward order. Products that are cut by columns need each column's weights together.
  bool const by_columns = column_slices(plan) > 1;
  Norm const norm1 = make_norm(layer, model, "norm 1");
  Linear const qkv_linear{layer.parameter("qkv weight", {h, g, q + 2, d}, 1),
                          bias(model.biases || model.qkv_biases, "qkv bias", {g, q + 2, d}, 0)};
  Linear const out_linear{layer.parameter("out weight", {g * q * d, h}, 0, false, by_columns), std::nullopt,
                          by_columns};
  Join const attention_join = make_join(layer, model, plan, "out");
  Norm const norm2 = make_norm(layer, model, "norm 2");
  Linear const first{layer.parameter(gated ? "gate-up weight" : "fc1 weight", first_shape, first_split),
                     gated ? bias(model.biases, "gate-up bias", {2, f}, 1) : bias(model.biases, "fc1 bias", {f}, 0)};
  Linear const second{layer.parameter(gated ? "down weight" : "fc2 weight", {f, h}, 0, false, by_columns), std::nullopt,
                      by_columns};
  Join const mlp_join = make_join(layer, model, plan, gated ? "down" : "fc2");

  // Forward.
  TensorId const x = layer.boundary("x", Scope::input, {T, h});
  TensorId const y = layer.boundary("y", Scope::output, {T, h});
  TensorId const n1 = layer.local("norm 1 output", {T, h}, dtype, residual);
  TensorId const qkv = layer.local("qkv", {T, g, q + 2, d}, dtype, LayerBuilder::along(1));
  TensorId const o = layer.local("attention output", {T, g, q * d}, dtype, LayerBuilder::along(1));
  TensorId const projected = layer.local("out output", {T, h}, dtype, residual);
  TensorId const x2 = layer.local("middle", {T, h}, dtype, residual);
  TensorId const n2 = layer.local("norm 2 output", {T, h}, dtype, residual);
  TensorId const wide = layer.local(gated ? "gate-up" : "fc1 output", first_out, dtype,
                                    LayerBuilder::along(first_split));
  TensorId const activated = layer.local("activated", {T, f}, dtype, LayerBuilder::along(1));
  TensorId const narrow = layer.local(gated ? "down output" : "fc2 output", {T, h}, dtype, residual);

  norm_forward(layer, model, plan, norm1, "norm 1", x, n1);
  linear_forward(layer, qkv_linear, "qkv", n1, qkv);
  // Eager trainers bring queries, keys and values into the layout of attention: split and made contiguous, keys and values
  // joined and permuted (nanotron, models/llama.py: CausalSelfAttention.forward), and the output back.
  TensorId laid_out = joins ? layer.copy(layer.copy(qkv, Part::forward, "qkv contiguous"), Part::forward,
                                         "keys and values joined")
                            : qkv;
  bool const rotates = model.positions == Positions::rotary;
  if (rotates && plan.execution.eager_rotary)
    laid_out = in_fp32_and_back(layer, plan, "rope", laid_out, Part::forward);
  if (rotates)
    layer.forward(OpKind::rope_forward, "rope", {laid_out}, {laid_out});
  AttentionCore const core = attention_forward(layer, model, plan, laid_out, o);
  TensorId const o_read = copies ? layer.copy(o, Part::forward, "attention output contiguous") : o;
  linear_forward(layer, out_linear, "out", o_read, projected);
  join_forward(layer, model, plan, attention_join, "out", projected, x, x2);
  norm_forward(layer, model, plan, norm2, "norm 2", x2, n2);
  linear_forward(layer, first, gated ? "gate-up" : "fc1", n2, wide);
  layer.forward(gated ? OpKind::swiglu_forward : OpKind::gelu_forward, gated ? "swiglu" : "gelu", {wide}, {activated});
  // silu by a kernel of its own, whose output the product with `up` keeps.
  std::optional<TensorId> silu;
  if (eager && gated)
    silu = layer.copy(activated, Part::forward, "silu");
  linear_forward(layer, second, gated ? "down" : "fc2", activated, narrow);
  join_forward(layer, model, plan, mlp_join, gated ? "down" : "fc2", narrow, x2, y);

  // Backward.
  TensorId const dy = layer.boundary("dy", Scope::output_gradient, {T, h});
  TensorId const dx = layer.boundary("dx", Scope::input_gradient, {T, h});
  TensorId const dactivated = layer.local("d activated", {T, f}, dtype, LayerBuilder::along(1));
  TensorId const dwide = layer.local("d wide", first_out, dtype, LayerBuilder::along(first_split));
  TensorId const dn2 = layer.local("d norm 2", {T, h}, dtype, residual);
  TensorId const dx2 = layer.local("d middle", {T, h}, dtype, residual);
  TensorId const d_o = layer.local("d attention output", {T, g, q * d}, dtype, LayerBuilder::along(1));
  TensorId const dqkv = layer.local("d qkv", {T, g, q + 2, d}, dtype, LayerBuilder::along(1));
  TensorId const dn1 = layer.local("d norm 1", {T, h}, dtype, residual);

  TensorId const dnarrow = join_backward(layer, model, plan, mlp_join, gated ? "down" : "fc2", dy);
  linear_backward(layer, second, gated ? "down" : "fc2", activated, dnarrow, dactivated);
  if (silu) {
    layer.copy(*silu, Part::input_gradient, "d up");
    layer.copy(dactivated, Part::input_gradient, "d silu");
  }
  layer.input_gradient(gated ? OpKind::swiglu_backward : OpKind::gelu_backward,
                       gated ? "swiglu backward" : "gelu backward", {wide, dactivated}, {dwide});
  TensorId const dwide_read = silu ? layer.copy(dwide, Part::input_gradient, "d gate and d up joined") : dwide;
  linear_backward(layer, first, gated ? "gate-up" : "fc1", n2, dwide_read, dn2);
  // autograd adds the gradient of the residual by a kernel of its own
  TensorId const dn2_read = eager ? layer.copy(dn2, Part::input_gradient, "add d residual 2") : dn2;
  norm_backward(layer, model, plan, norm2, "norm 2", dn2_read, x2, dy, dx2);
  TensorId const dprojected = join_backward(layer, model, plan, attention_join, "out", dx2);
  linear_backward(layer, out_linear, "out", o_read, dprojected, d_o);
  TensorId const d_o_read = copies ? layer.copy(d_o, Part::input_gradient, "d attention output contiguous") : d_o;
  attention_backward(layer, model, plan, core, d_o_read, dqkv);
  if (rotates)
    layer.input_gradient(OpKind::rope_backward, "rope backward", {dqkv}, {dqkv});
  TensorId dqkv_read = rotates && plan.execution.eager_rotary
                           ? in_fp32_and_back(layer, plan, "rope backward", dqkv, Part::input_gradient)
                           : dqkv;
  if (joins)
    dqkv_read = layer.copy(dqkv_read, Part::input_gradient, "d keys and d values split");
  if (copies || plan.execution.triton_attention) // autograd's gradient of a split
    dqkv_read = layer.copy(dqkv_read, Part::input_gradient, "d qkv joined");
  linear_backward(layer, qkv_linear, "qkv", n1, dqkv_read, dn1);
  TensorId const dn1_read = eager ? layer.copy(dn1, Part::input_gradient, "add d residual 1") : dn1;
  norm_backward(layer, model, plan, norm1, "norm 1", dn1_read, x, dx2, dx);
  return layer.take();
}

LayerProgram head_layer(Model const& model, Plan const& plan) {
  LayerBuilder layer("head", LayerKind::head, plan);
  std::int64_t const T = plan.tokens(), h = model.hidden, V = model.vocabulary;
  DType const dtype = plan.parameter_dtype;
  Cut const by_vocabulary = LayerBuilder::along(1);
  Norm const norm = make_norm(layer, model, "final norm");
  ParameterTensors const weight = layer.parameter("head weight", {V, h}, 0, model.tied_embeddings);

  TensorId const x = layer.boundary("x", Scope::input, {T, h});
  TensorId const dx = layer.boundary("dx", Scope::input_gradient, {T, h});
  TensorId const labels = layer.ids("labels", Scope::labels, T);
  TensorId const n = layer.local("final norm output", {T, h}, dtype, LayerBuilder::residual);
  TensorId const logits = layer.local("logits", {T, V}, dtype, by_vocabulary, Category::logits);
  TensorId const logits32 = layer.local("fp32 logits", {T, V}, DType::fp32, by_vocabulary, Category::logits);
  TensorId const maximum = layer.local("maximum", {T}, DType::fp32, LayerBuilder::whole);
  TensorId const sums = layer.local("sums", {T, 2}, DType::fp32, LayerBuilder::whole);
  TensorId const loss = layer.loss();

  norm_forward(layer, model, plan, norm, "final norm", x, n);
  layer.forward(OpKind::linear_forward, "head", {n, weight.value}, {logits}).transposed = true;
  layer.forward(OpKind::cast, "logits to fp32", {logits}, {logits32});
  layer.forward(OpKind::loss_maximum, "loss maximum", {logits32}, {maximum});
  // Eager trainers subtract the maximum into a tensor of its own, take exponentials and divide by their sum in place; the
  // backward works on it, too (nanotron, parallel/tensor_parallel/functional.py: _ShardedCrossEntropy).
  bool const eager = plan.execution.eager_loss;
  TensorId const summed = eager ? layer.copy(logits32, Part::forward, "logits - maximum") : logits32;
  if (eager) {
    layer.forward(OpKind::cast, "exponentials", {summed}, {summed});
    layer.forward(OpKind::cast, "probabilities", {summed}, {summed});
  }
  layer.forward(OpKind::loss_sums, "loss sums", {summed, labels, maximum}, {sums});
  double const scale = 1.0 / static_cast<double>(plan.global_batch * plan.sequence_length);
  layer.forward(OpKind::loss_forward, "loss", {sums, loss}, {loss}).scale = scale;

  TensorId const dlogits = layer.local("d logits", {T, V}, dtype, by_vocabulary, Category::logits);
  TensorId const dn = layer.local("d final norm", {T, h}, dtype, LayerBuilder::residual);
  if (eager)
    layer.input_gradient(OpKind::cast, "d probabilities", {summed}, {summed});
  layer.input_gradient(OpKind::loss_backward, "loss backward", {summed, labels, maximum, sums}, {summed}).scale = scale;
  layer.input_gradient(OpKind::cast, "d logits to bf16", {summed}, {dlogits});
  layer.input_gradient(OpKind::linear_input_gradient, "head dX", {dlogits, weight.value}, {dn}).transposed = true;
  layer.weight_gradient(OpKind::linear_weight_gradient, "head dW", {n, dlogits}, {weight.gradient}).transposed = true;
  norm_backward(layer, model, plan, norm, "final norm", dn, x, std::nullopt, dx);
  return layer.take();
}

} // namespace foreplan

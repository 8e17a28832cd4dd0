// The end of a step, in Megatron-LM's order (notes: algorithms.md 12.4): sums over copies of replicated parameters, the
// loss, the global norm (a barrier: the host reads it), Adam on this rank's part, the end of the step.
#include "program/step_passes/step_passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace foreplan {

namespace {

class Optimizer {
public:
  Optimizer(Program const& program, StageProgram& stage) : program_(program), plan_(program.plan), stage_(stage) {}

  void run() {
    for (std::size_t k = 0; k < stage_.buckets.size(); ++k)
      sum_over_copies(k);
    if (stage_.chunks.back().last == program_.model.layers + 2)
      average_loss();
    TensorId const norm = global_norm();
    for (std::size_t k = 0; k < stage_.buckets.size(); ++k)
      adam(k, norm);
    Op end = step_op(stage_, OpKind::wait, "step end", Stream::compute, {}, {});
    end.host_sync = true;
    stage_.elements.emplace_back(std::move(end));
  }

private:
  Tensor own(Bucket const& bucket, BufferId buffer, Placement placement) const {
    return own_part(stage_, plan_, bucket, buffer, placement);
  }

  // Gradients of parameters that several ranks hold are parts of a sum where these ranks saw different tokens
  // (sequence parallelism) or used them at different ends of the network (tied embedding).
  void sum_over_copies(std::size_t k) {
    Bucket& bucket = stage_.buckets[k];
    auto reduce = [&](Axis axis, Group group) {
      if (bucket.gradient_placement[axis] != partial_sum)
        return;
      TensorId const from = add_tensor(stage_, own(bucket, bucket.shard_gradients, bucket.gradient_placement));
      bucket.gradient_placement[axis] = replicated;
      TensorId const to = add_tensor(stage_, own(bucket, bucket.shard_gradients, bucket.gradient_placement));
      Op op = step_op(stage_, OpKind::all_reduce, fmt::format("sum bucket {} over copies", k), Stream::dp, {from},
                      {to});
      op.group = group;
      stage_.elements.emplace_back(std::move(op));
    };
    reduce(Axis::tp, {Axis::tp, false});
    reduce(Axis::pp, {Axis::pp, true});
  }

  void average_loss() {
    TensorId const from = add_tensor(stage_,
                                     flat_tensor(stage_, BufferId(loss_buffer), placed({}, data_axes, partial_sum)));
    TensorId const to = add_tensor(stage_, flat_tensor(stage_, BufferId(loss_buffer), Placement{}));
    stage_.results.push_back(to);
    if (group_size(plan_, data_axes) == 1)
      return;
    Op op = step_op(stage_, OpKind::all_reduce, "average loss", Stream::dp, {from}, {to});
    op.group = {data_group(plan_), false};
    stage_.elements.emplace_back(std::move(op));
  }

  // Axes along which a rank has only a part of the sum of squares.
  AxisSet norm_axes() const {
    AxisSet const model{Axis::tp, Axis::pp};
    return plan_.zero_stage >= 1 ? nontrivial(plan_, model | shard_axes(plan_)) : model;
  }

  TensorId global_norm() {
    BufferId const buffer = add_buffer(stage_, {"sum of squares", Category::scratch, DType::fp32, 1, true});
    Placement const parts = placed({}, norm_axes(), partial_sum);
    TensorId const sum = add_tensor(stage_, flat_tensor(stage_, buffer, parts));
    stage_.elements.emplace(stage_.elements.begin(),
                            step_op(stage_, OpKind::zero_fill, "clear sum of squares", Stream::compute, {}, {sum}));
    if (plan_.execution.gradient_launches > 0) { // the checks read their results back, one by one
      Op reduced = step_op(stage_, OpKind::wait, "gradients reduced", Stream::compute, {}, {});
      reduced.host_sync = true;
      stage_.elements.emplace_back(std::move(reduced));
    }
    for (std::size_t k : last_reduced_first()) {
      Bucket const& bucket = stage_.buckets[k];
      TensorId const gradient = add_tensor(stage_, own(bucket, bucket.shard_gradients, bucket.gradient_placement));
      Op op = step_op(stage_, OpKind::norm_squared, fmt::format("norm of bucket {}", k), Stream::compute,
                      {gradient, sum}, {sum});
      op.scale = 1.0 / holders(bucket);
      if (plan_.execution.gradient_launches > 0)
        op.launches = plan_.execution.gradient_launches * parameters_in(bucket);
      stage_.elements.emplace_back(std::move(op));
    }
    // Whether to clip, and what to log, is decided on the host: it waits for the norm.
    TensorId const total = add_tensor(stage_, flat_tensor(stage_, buffer, Placement{}));
    if (group_size(plan_, norm_axes()) == 1) {
      std::get<Op>(stage_.elements.back()).host_sync = true;
      return total;
    }
    Op op = step_op(stage_, OpKind::all_reduce, "global norm", Stream::dp, {sum}, {total});
    op.group = {norm_axes(), false};
    op.host_sync = true;
    stage_.elements.emplace_back(std::move(op));
    return total;
  }

  // The bucket that is reduced last holds up the norm whatever comes first.
  std::vector<std::size_t> last_reduced_first() const {
    std::vector<std::size_t> order(stage_.buckets.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      auto key = [&](std::size_t k) { return std::pair(stage_.buckets[k].chunk, stage_.buckets[k].lowest_layer); };
      return key(a) < key(b);
    });
    return order;
  }

  int parameters_in(Bucket const& bucket) const {
    int count = 0;
    for (StageLayer const& layer : stage_.layers)
      for (ParameterHome const& home : layer.homes)
        count += home.parameters == bucket.parameters ? 1 : 0;
    return count;
  }

  // Ranks that add the same squares.
  int holders(Bucket const& bucket) const {
    int holders = 1;
    if (bucket.gradient_placement[Axis::tp] == replicated)
      holders *= plan_.tp;
    if (bucket.gradient_placement[Axis::pp] == replicated)
      holders *= 2; // both ends of a tied matrix
    return holders;
  }

  void adam(std::size_t k, TensorId norm) {
    Bucket const& bucket = stage_.buckets[k];
    std::vector<TensorId> states;
    Placement const placement =
        own_part(stage_, plan_, bucket, bucket.shard_gradients, bucket.gradient_placement).placement;
    for (char const* state : {"master weights", "first moments", "second moments"}) {
      BufferId const buffer = add_buffer(stage_, {fmt::format("bucket {} {}", k, state), Category::optimizer,
                                                  DType::fp32, bucket.shard_elements, true});
      states.push_back(add_tensor(stage_, flat_tensor(stage_, buffer, placement)));
    }
    stage_.initial.insert(stage_.initial.end(), states.begin(), states.end());
    TensorId const gradient = add_tensor(stage_, own(bucket, bucket.shard_gradients, bucket.gradient_placement));
    TensorId const parameter = add_tensor(stage_, own(bucket, bucket.shard_parameters, bucket.gradient_placement));
    stage_.elements.emplace_back(step_op(stage_, OpKind::adam, fmt::format("adam of bucket {}", k), Stream::compute,
                                         {gradient, norm, states[0], states[1], states[2]},
                                         {states[0], states[1], states[2], parameter}));
  }

  Program const& program_;
  Plan const& plan_;
  StageProgram& stage_;
};

} // namespace

void optimizer(Program const& program, StageProgram& stage) { Optimizer(program, stage).run(); }

} // namespace foreplan

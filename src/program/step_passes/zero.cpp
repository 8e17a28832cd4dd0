// ZeRO stages 0 and 1 (arXiv 1910.02054): data-parallel ranks reduce the gradients of every bucket once a step, when the
// last micro-batch's backward has completed it. Stage 0 keeps whole sums on every rank (all-reduce). Stage 1 leaves each
// rank the sum of its own shard (reduce-scatter), which it alone updates; the updated parameters are gathered at the
// beginning of the next step, bucket by bucket under the first forward (Megatron-LM's distributed optimizer).
#include "program/step_passes/step_passes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace foreplan {

namespace {

class Zero {
public:
  Zero(Program const& program, StageProgram& stage)
      : plan_(program.plan), stage_(stage), has_head_(stage.chunks.back().last == program.model.layers + 2) {}

  void run() {
    share_out_states();
    if (group_size(plan_, data_axes) > 1 && !reduces_every_micro_batch(plan_))
      reduce_in_last_backward();
    if (!shard_axes(plan_).empty())
      gather_before_first_forward();
    clear_gradients();
    declare_initial();
  }

private:
  void share_out_states() {
    for (std::size_t k = 0; k < stage_.buckets.size(); ++k) {
      Bucket& bucket = stage_.buckets[k];
      bucket.sharded_over = shard_axes(plan_);
      bucket.shard_elements = bucket.elements / group_size(plan_, bucket.sharded_over);
      if (bucket.whole_parameters)
        continue;
      stage_.buffers[bucket.parameters.index()].persistent = false;
      bucket.shard_parameters = add_buffer(stage_,
                                           {fmt::format("bucket {} parameters, own shard", k), Category::parameters,
                                            plan_.parameter_dtype, bucket.shard_elements, true});
    }
  }

  // Of each chunk the slot that completes its weights' gradients.
  std::vector<Slot> last_gradients() const {
    SlotKind const kind = splits_backward(plan_.schedule) ? SlotKind::weight_gradient : SlotKind::backward;
    std::vector<Slot> last(stage_.chunks.size());
    for (Element const& element : stage_.elements)
      if (Slot const* slot = std::get_if<Slot>(&element); slot != nullptr && slot->kind == kind)
        last[slot->chunk.index()] = *slot;
    return last;
  }

  // Cuts the last micro-batch's backward of each chunk where a bucket is complete, and reduces it there.
  void reduce_in_last_backward() {
    std::vector<Slot> const last = last_gradients();
    std::vector<Element> result;
    std::vector<std::size_t> at_slot_end; // reduced behind the slot's send, which others wait for
    auto flush = [&] {
      for (std::size_t k : at_slot_end)
        reduce(k, result);
      at_slot_end.clear();
    };
    for (Element& element : stage_.elements) {
      Slot const* slot = std::get_if<Slot>(&element);
      if (slot != nullptr)
        flush();
      if (slot == nullptr || std::find(last.begin(), last.end(), *slot) == last.end()) {
        result.push_back(std::move(element));
        continue;
      }
      Slot rest = *slot;
      for (int layer = rest.last - 1; layer >= rest.first; --layer) {
        std::vector<std::size_t> complete;
        for (std::size_t k = 0; k < stage_.buckets.size(); ++k)
          if (stage_.buckets[k].chunk == rest.chunk && stage_.buckets[k].lowest_layer == layer)
            complete.push_back(k);
        if (complete.empty())
          continue;
        Slot piece = rest;
        piece.id = layer == rest.first ? rest.id : OpId(stage_.next_op++);
        piece.first = layer;
        rest.last = layer;
        result.emplace_back(piece);
        at_slot_end = std::move(complete);
        if (layer > rest.first)
          flush();
      }
      if (rest.last > rest.first)
        result.emplace_back(rest);
    }
    flush();
    stage_.elements = std::move(result);
  }

  void reduce(std::size_t k, std::vector<Element>& result) {
    BufferId const wire = gradients_on_wire(plan_, stage_, k, result);
    TensorId const sum = reduce_gradients(plan_, stage_, k, wire, true, result);
    Bucket const& bucket = stage_.buckets[k];
    if (wire == bucket.gradients)
      return;
    Tensor const own = own_part(stage_, plan_, bucket, bucket.gradients, bucket.gradient_placement);
    Op cast = step_op(stage_, OpKind::cast, "gradients from wire", Stream::compute, {sum}, {add_tensor(stage_, own)});
    cast.releases = {{BufferRef::Scope::stage, wire.value()}};
    casts_back_.emplace_back(std::move(cast));
  }

  // Gathers in the order in which the first forward needs the buckets; that forward is cut where the next is needed.
  void gather_before_first_forward() {
    std::vector<std::size_t> order(stage_.buckets.size());
    for (std::size_t k = 0; k < order.size(); ++k)
      order[k] = k;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return stage_.buckets[a].lowest_layer < stage_.buckets[b].lowest_layer;
    });
    std::vector<Element> result;
    for (std::size_t k : order) {
      Bucket const& bucket = stage_.buckets[k];
      if (!bucket.whole_parameters)
        continue;
      TensorId const from = add_tensor(stage_, own_part(stage_, plan_, bucket, bucket.parameters, bucket.placement));
      TensorId const to = add_tensor(stage_, flat_tensor(stage_, bucket.parameters, bucket.placement));
      Op op = step_op(stage_, OpKind::all_gather, fmt::format("gather bucket {}", k), Stream::dp, {from}, {to});
      op.group = {bucket.sharded_over, false};
      op.by_owner = plan_.execution.broadcast_parameters;
      result.emplace_back(std::move(op));
    }
    for (Element& element : stage_.elements) {
      Slot const* slot = std::get_if<Slot>(&element);
      if (slot == nullptr || slot->kind != SlotKind::forward || slot->micro_batch != MicroBatch(0))
        result.push_back(std::move(element));
      else
        cut_at_bucket_borders(*slot, result);
    }
    stage_.elements = std::move(result);
  }

  void cut_at_bucket_borders(Slot rest, std::vector<Element>& result) {
    for (int layer = rest.first + 1; layer < rest.last; ++layer) {
      bool const border = std::any_of(stage_.buckets.begin(), stage_.buckets.end(), [&](Bucket const& bucket) {
        return bucket.whole_parameters && bucket.chunk == rest.chunk && bucket.lowest_layer == layer;
      });
      if (!border)
        continue;
      Slot piece = rest;
      piece.id = OpId(stage_.next_op++);
      piece.last = layer;
      rest.first = layer;
      result.emplace_back(piece);
    }
    result.emplace_back(rest);
  }

  // Before anything accumulates; the casts from the wire come after everything.
  void clear_gradients() {
    std::vector<Element> result;
    auto clear = [&](Tensor tensor) {
      std::string name = "clear " + tensor.name;
      result.emplace_back(step_op(stage_, OpKind::zero_fill, std::move(name), Stream::compute, {},
                                  {add_tensor(stage_, std::move(tensor))}));
    };
    for (Bucket const& bucket : stage_.buckets)
      if (!reduces_every_micro_batch(plan_))
        clear(flat_tensor(stage_, bucket.gradients, bucket.gradient_placement));
    Placement const loss = placed({}, data_axes, partial_sum);
    if (has_head_)
      clear(flat_tensor(stage_, BufferId(loss_buffer), loss));
    result.insert(result.end(), std::make_move_iterator(stage_.elements.begin()),
                  std::make_move_iterator(stage_.elements.end()));
    result.insert(result.end(), std::make_move_iterator(casts_back_.rbegin()),
                  std::make_move_iterator(casts_back_.rend()));
    stage_.elements = std::move(result);
  }

  void declare_initial() {
    for (Bucket const& bucket : stage_.buckets) {
      stage_.initial.push_back(
          add_tensor(stage_, own_part(stage_, plan_, bucket, bucket.shard_parameters, bucket.placement)));
    }
  }

  Plan const& plan_;
  StageProgram& stage_;
  bool has_head_; // the loss is accumulated here
  std::vector<Element> casts_back_;
};

} // namespace

void zero(Program const& program, StageProgram& stage) { Zero(program, stage).run(); }

} // namespace foreplan

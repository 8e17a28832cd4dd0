// ZeRO stages 2 and 3 (arXiv 1910.02054, section 5.2): a rank keeps of the gradients only its shard. A bucket's gradients live
// from the layer of a backward that first writes them to their reduce-scatter, in every micro-batch, and add up in the shard.
// As in FSDP (PyTorch, _fsdp_param_group.py, post_backward), a reduction is waited for where the next one begins, so that two
// buckets' gradients are alive at most, and the last one of a backward at that backward's end. With replicas (HSDP, arXiv
// 2304.11277, section 3.2.2) the shards are summed over them, at once or (MiCS, arXiv 2205.00119, section 3.4) once a step.
#include "program/step_passes/step_passes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace foreplan {

namespace {

class Zero2 {
public:
  Zero2(Program const& program, StageProgram& stage) : plan_(program.plan), stage_(stage) {}

  void run() {
    share_out_gradients();
    std::vector<Element> elements = std::move(stage_.elements);
    for (Element& element : elements) {
      Slot const* slot = std::get_if<Slot>(&element);
      if (slot != nullptr)
        end_backward();
      if (slot != nullptr && slot->kind == SlotKind::backward)
        backward(*slot);
      else
        result_.push_back(std::move(element));
    }
    end_backward();
    if (sums_replicas_at_end())
      sum_over_replicas();
    stage_.elements = std::move(result_);
  }

private:
  struct Reduction {
    std::size_t bucket;
    std::vector<BufferRef> temporaries; // of the reduction
    TensorId sum;                       // this rank's part
  };

  bool sums_replicas_at_end() const { return has_copies(plan_) && plan_.sharding.reduce_replicas_once; }

  // Of the accumulated gradients; along replica a part of the sum until it is taken.
  TensorId accumulated(Bucket const& bucket, bool summed_over_replicas) {
    Tensor tensor = own_part(stage_, plan_, bucket, bucket.shard_gradients, bucket.gradient_placement);
    if (!summed_over_replicas)
      tensor.placement[Axis::replica] = partial_sum;
    return add_tensor(stage_, std::move(tensor));
  }

  void share_out_gradients() {
    for (std::size_t k = 0; k < stage_.buckets.size(); ++k) {
      Bucket& bucket = stage_.buckets[k];
      stage_.buffers[bucket.gradients.index()].persistent = false;
      bucket.shard_gradients = add_buffer(stage_,
                                          {fmt::format("bucket {} accumulated gradients", k), Category::gradients,
                                           plan_.gradient_dtype, bucket.shard_elements, true});
      result_.emplace_back(step_op(stage_, OpKind::zero_fill, "clear accumulated gradients", Stream::compute, {},
                                   {accumulated(bucket, !sums_replicas_at_end())}));
    }
  }

  void backward(Slot const& slot) {
    auto ends_at = [&](Bucket const& bucket, int layer) {
      return bucket.chunk == slot.chunk && bucket.lowest_layer == layer;
    };
    std::vector<Slot> const parts = cut_slot(stage_, slot, [&](int layer) {
      return std::any_of(stage_.buckets.begin(), stage_.buckets.end(),
                         [&](Bucket const& bucket) { return ends_at(bucket, layer); });
    });
    for (Slot const& part : parts) {
      for (std::size_t k = 0; k < stage_.buckets.size(); ++k)
        if (int const layer = stage_.buckets[k].highest_layer; part.first <= layer && layer < part.last)
          clear(k);
      result_.emplace_back(part);
      for (std::size_t k = 0; k < stage_.buckets.size(); ++k)
        if (ends_at(stage_.buckets[k], part.first))
          complete_.push_back(k);
      if (part.first > slot.first)
        reduce(); // the last ones behind the slot's send, which others wait for
    }
  }

  void clear(std::size_t k) {
    Bucket const& bucket = stage_.buckets[k];
    TensorId const gradients = add_tensor(stage_, flat_tensor(stage_, bucket.gradients, bucket.gradient_placement));
    result_.emplace_back(step_op(stage_, OpKind::zero_fill, fmt::format("clear bucket {} gradients", k),
                                 Stream::compute, {}, {gradients}));
  }

  void reduce() {
    if (complete_.empty())
      return;
    accumulate();
    for (std::size_t k : complete_) {
      if (stage_.buckets[k].quantized_gradients) {
        Reduction reduction{k, {}, {}};
        reduction.sum = reduce_quantized_gradients(plan_, stage_, k, result_, reduction.temporaries);
        reduced_.push_back(std::move(reduction));
        continue;
      }
      BufferId const gradients = stage_.buckets[k].gradients;
      BufferId const wire = gradients_on_wire(plan_, stage_, k, result_);
      if (wire != gradients)
        std::get<Op>(result_.back()).releases = {{BufferRef::Scope::stage, gradients.value()}};
      TensorId const sum = reduce_gradients(plan_, stage_, k, wire, !sums_replicas_at_end(), result_);
      reduced_.push_back({k, {{BufferRef::Scope::stage, wire.value()}}, sum});
    }
    complete_.clear();
  }

  void accumulate() {
    for (Reduction const& reduction : reduced_) {
      TensorId const sum = accumulated(stage_.buckets[reduction.bucket], !sums_replicas_at_end());
      Op op = step_op(stage_, OpKind::accumulate, fmt::format("accumulate bucket {}", reduction.bucket),
                      Stream::compute, {reduction.sum, sum}, {sum});
      op.releases = reduction.temporaries;
      result_.emplace_back(std::move(op));
    }
    reduced_.clear();
  }

  void end_backward() {
    reduce();
    accumulate();
  }

  void sum_over_replicas() {
    for (std::size_t k = 0; k < stage_.buckets.size(); ++k) {
      Bucket const& bucket = stage_.buckets[k];
      Op op = step_op(stage_, OpKind::all_reduce, fmt::format("sum bucket {} over replicas", k), Stream::replica,
                      {accumulated(bucket, false)}, {accumulated(bucket, true)});
      op.group = {Axis::replica, false};
      result_.emplace_back(std::move(op));
    }
  }

  Plan const& plan_;
  StageProgram& stage_;
  std::vector<Element> result_;
  std::vector<std::size_t> complete_; // buckets whose gradients are written, but not yet being reduced
  std::vector<Reduction> reduced_;    // under way, not yet accumulated
};

} // namespace

void zero_2(Program const& program, StageProgram& stage) {
  if (reduces_every_micro_batch(program.plan))
    Zero2(program, stage).run();
}

} // namespace foreplan

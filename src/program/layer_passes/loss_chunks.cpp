// The loss in pieces of rows (Liger Kernel, arXiv 2410.10989, section 3.2: FusedLinearCrossEntropy; torchtitan's chunked
// loss): the head's product, the loss and both their gradients of one piece follow each other, so that the logits of one
// piece at a time are held. All of it stands at the beginning of the backward, where the last stage comes straight from
// the forward: nothing is computed twice. The weights' gradient stays with it where the backward is split, for what it
// reads are the logits' gradients.
#include "program/layer_passes/layer_passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace foreplan {

namespace {

class Chunker {
public:
  Chunker(LayerProgram& layer, Plan const& plan) : layer_(layer), rows_(plan.tokens()), chunks_(plan.loss_chunks) {
    for (SlotKind kind : slot_kinds)
      for (Op const& op : ops_of(layer, kind))
        next_op_ = std::max(next_op_, op.id.value() + 1);
  }

  void run() {
    auto const head = std::ranges::find(layer_.forward, OpKind::linear_forward, &Op::kind);
    auto const norm = std::ranges::find(layer_.backward, OpKind::norm_backward, &Op::kind);
    std::vector<Op> piece(head, layer_.forward.end()), before, after(norm, layer_.backward.end());
    layer_.forward.erase(head, layer_.forward.end());
    // What the product reads is gathered over tp where it is used, once for both products with it.
    std::map<TensorId, TensorId> gathered;
    for (Op const& op : layer_.forward)
      if (op.kind == OpKind::all_gather) {
        gathered[op.reads[0]] = op.writes[0];
        before.push_back(op);
      }
    std::erase_if(layer_.forward, [](Op const& op) { return op.kind == OpKind::all_gather; });
    std::map<TensorId, TensorId> same; // the backward's gathered copies
    std::vector<Op> reductions;
    for (auto op = layer_.backward.begin(); op != norm; ++op)
      if (op->kind == OpKind::all_gather)
        same[op->writes[0]] = gathered.at(op->reads[0]);
      else if (is_collective(op->kind)) // the sum of all rows' input gradients
        reductions.push_back(*op);
      else
        piece.push_back(*op);
    for (Op& op : piece)
      for (TensorId& id : op.reads)
        if (auto const found = same.find(id); found != same.end())
          id = found->second;
    layer_.backward = std::move(before);
    for (int i = 0; i < chunks_; ++i)
      for (Op const& op : piece)
        layer_.backward.push_back(chunk_of(op, i));
    std::ranges::move(reductions, std::back_inserter(layer_.backward));
    std::ranges::move(after, std::back_inserter(layer_.backward));
    for (Op& op : layer_.backward)
      op.part = Part::input_gradient;
    shrink_logits();
  }

private:
  Op chunk_of(Op op, int chunk) {
    op.id = OpId(next_op_++);
    op.name += fmt::format(", chunk {}", chunk);
    for (std::vector<TensorId>* ids : {&op.reads, &op.writes})
      for (TensorId& id : *ids)
        id = chunk_of(id, chunk);
    return op;
  }

  bool counts_rows(Tensor const& tensor) const {
    BufferRef::Scope const scope = tensor.buffer.scope;
    return (scope == BufferRef::Scope::local || scope == BufferRef::Scope::labels) && tensor.shape[0] == rows_;
  }

  // Rows of the tensor; of the logits, a tensor in a buffer of its own.
  TensorId chunk_of(TensorId id, int chunk) {
    if (!counts_rows(layer_[id]))
      return id;
    auto const [found, is_new] = chunks_of_.try_emplace({id, chunk});
    if (!is_new)
      return found->second;
    Tensor view = layer_[id];
    view.name += fmt::format(", chunk {}", chunk);
    view.shape[0] /= chunks_;
    if (view.category != Category::logits)
      view.offset += chunk * view.elements();
    else if (chunk > 0)
      view.buffer.index = buffer_of_chunk(view.buffer.index, chunk);
    layer_.tensors.push_back(std::move(view));
    return found->second = TensorId(static_cast<std::int64_t>(layer_.tensors.size()) - 1);
  }

  // Views of one buffer stay views of one.
  std::int32_t buffer_of_chunk(std::int32_t buffer, int chunk) {
    auto const [found, is_new] = buffers_of_.try_emplace({buffer, chunk});
    if (is_new) {
      found->second = static_cast<std::int32_t>(layer_.buffers.size());
      layer_.buffers.push_back(layer_.buffers[static_cast<std::size_t>(buffer)]);
    }
    return found->second;
  }

  void shrink_logits() {
    for (Buffer& buffer : layer_.buffers)
      if (buffer.category == Category::logits)
        buffer.elements /= chunks_;
  }

  LayerProgram& layer_;
  std::int64_t rows_;
  int chunks_;
  std::int32_t next_op_ = 0;
  std::map<std::pair<TensorId, int>, TensorId> chunks_of_;
  std::map<std::pair<std::int32_t, int>, std::int32_t> buffers_of_;
};

} // namespace

void loss_chunks(LayerProgram& layer, Plan const& plan) {
  if (plan.loss_chunks > 1 && layer.kind == LayerKind::head)
    Chunker(layer, plan).run();
}

} // namespace foreplan

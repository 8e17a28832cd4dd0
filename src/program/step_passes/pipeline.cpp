// Slots of a schedule with the transfers between stages.
//   synchronous  receive, slot, send; the next slot waits for the send as well (Megatron-LM without p2p overlap)
//   overlapped   a slot's receive is issued before the slot in front of it, and a send is waited for one slot later
#include "program/step_passes/step_passes.hpp"

#include <algorithm>
#include <optional>

namespace foreplan {

namespace {

// A transfer of one boundary of one micro-batch.
struct Transfer {
  Channel channel;
  int boundary = 0;
  MicroBatch micro_batch;
};

class Writer {
public:
  Writer(Program const& program, StageProgram& stage) : program_(program), plan_(program.plan), stage_(stage) {}

  void write(std::vector<Work> const& order) {
    bool const overlapped = plan_.p2p == P2p::overlapped;
    std::size_t const lag = overlapped ? 2 : 1; // slots between a send and the slot that waits for it
    if (overlapped && !order.empty())
      receive(order[0]);
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (!overlapped)
        receive(order[i]);
      else if (i + 1 < order.size())
        receive(order[i + 1]);
      if (i >= lag)
        release_sent(order[i - lag]);
      add_slot(order[i]);
      send(order[i]);
    }
    // The last send first: it follows all slots.
    for (std::size_t left = std::min(lag, order.size()), i = order.size(); left > 0; --left)
      release_sent(order[--i]);
  }

private:
  int parts() const { return plan_.pp * plan_.chunks; }
  int part(Work const& work) const { return work.chunk.value() * plan_.pp + stage_.stage.value(); }
  Stage stage_of(int part) const { return Stage(part % plan_.pp); }
  LayerRange layers(Work const& work) const { return stage_.chunks[work.chunk.index()]; }

  std::optional<Transfer> incoming(Work const& work) const {
    bool const forward = work.kind == SlotKind::forward;
    int const from = forward ? part(work) - 1 : part(work) + 1;
    if (from < 0 || from >= parts() || plan_.pp == 1)
      return std::nullopt;
    Channel::What const what = forward ? Channel::What::activation : Channel::What::gradient;
    return Transfer{
        {what, stage_of(from), stage_.stage}, forward ? layers(work).first : layers(work).last, work.micro_batch};
  }

  std::optional<Transfer> outgoing(Work const& work) const {
    bool const forward = work.kind == SlotKind::forward;
    int const to = forward ? part(work) + 1 : part(work) - 1;
    if (to < 0 || to >= parts() || plan_.pp == 1)
      return std::nullopt;
    Channel::What const what = forward ? Channel::What::activation : Channel::What::gradient;
    return Transfer{
        {what, stage_.stage, stage_of(to)}, forward ? layers(work).last : layers(work).first, work.micro_batch};
  }

  static BufferRef buffer_of(Transfer const& transfer) {
    bool const activation = transfer.channel.what == Channel::What::activation;
    return {activation ? BufferRef::Scope::activation : BufferRef::Scope::activation_gradient, transfer.boundary};
  }

  // Boundaries are tensors like a block's input.
  TensorId tensor_of(Transfer const& transfer) {
    BufferRef const buffer = buffer_of(transfer);
    for (std::size_t i = 0; i < stage_.tensors.size(); ++i)
      if (stage_.tensors[i].buffer == buffer)
        return TensorId(static_cast<std::int64_t>(i));
    std::int64_t const shards = plan_.sequence_parallel ? plan_.tp : 1;
    Tensor tensor{.name = transfer.channel.what == Channel::What::activation ? "activations" : "activation gradients",
                  .buffer = buffer,
                  .shape = {plan_.tokens() / shards, program_.model.hidden},
                  .dtype = plan_.parameter_dtype};
    tensor.placement = placed({}, data_axes, sharded(0));
    if (shards > 1)
      tensor.placement[Axis::tp] = sharded(0);
    return add_tensor(stage_, std::move(tensor));
  }

  void receive(Work const& work) {
    if (std::optional<Transfer> const transfer = incoming(work)) {
      bool const activation = transfer->channel.what == Channel::What::activation;
      TensorId const tensor = tensor_of(*transfer);
      add_transfer(*transfer,
                   step_op(stage_, OpKind::receive, activation ? "receive activations" : "receive gradients",
                           activation ? Stream::receive_activation : Stream::receive_gradient, {}, {tensor}));
    }
  }

  void send(Work const& work) {
    if (std::optional<Transfer> const transfer = outgoing(work)) {
      bool const activation = transfer->channel.what == Channel::What::activation;
      TensorId const tensor = tensor_of(*transfer);
      add_transfer(*transfer, step_op(stage_, OpKind::send, activation ? "send activations" : "send gradients",
                                      activation ? Stream::send_activation : Stream::send_gradient, {tensor}, {}));
    }
  }

  void add_transfer(Transfer const& transfer, Op op) {
    op.channel = transfer.channel;
    op.micro_batch = transfer.micro_batch;
    stage_.elements.emplace_back(std::move(op));
  }

  // A sent boundary is free once the send has ended (the gradient's consumer, or the next stage, has its own copy).
  void release_sent(Work const& work) {
    if (std::optional<Transfer> const transfer = outgoing(work)) {
      Op op = step_op(stage_, OpKind::wait, "release sent", Stream::compute, {}, {});
      op.micro_batch = transfer->micro_batch;
      op.releases = {buffer_of(*transfer)};
      stage_.elements.emplace_back(std::move(op));
    }
  }

  void add_slot(Work const& work) {
    LayerRange const range = layers(work);
    stage_.elements.emplace_back(
        Slot{OpId(stage_.next_op++), work.kind, work.chunk, work.micro_batch, range.first, range.last});
  }

  Program const& program_;
  Plan const& plan_;
  StageProgram& stage_;
};

} // namespace

void pipeline(Program const& program, StageProgram& stage, std::vector<Work> const& order) {
  Writer(program, stage).write(order);
}

} // namespace foreplan

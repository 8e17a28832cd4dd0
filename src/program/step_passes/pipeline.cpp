// Slots of a schedule with the transfers between stages.
//   synchronous  receive, slot, send; the next slot waits for the send as well (Megatron-LM without p2p overlap);
//                interleaved: in batches, see place_transfers.cpp
//   overlapped   a slot's receive is issued before the slot in front of it, and a send is waited for one slot later; where
//                the backward is split, see place_transfers.cpp
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

  void write(std::vector<PlacedWork> const& order) {
    std::vector<std::vector<std::size_t>> receives(order.size()), sends(order.size()), releases(order.size() + 1);
    for (std::size_t i = 0; i < order.size(); ++i) {
      receives[order[i].receive_before].push_back(i);
      sends[order[i].send_behind].push_back(i);
      releases[std::min(order[i].release_before, order.size())].push_back(i);
    }
    // The last send first: it follows all slots.
    auto const release = [&](std::vector<std::size_t> const& sent) {
      std::for_each(sent.rbegin(), sent.rend(), [&](std::size_t i) { release_sent(order[i].work); });
    };
    // Placed by unit times, what is released here has been sent by now: its memory serves what is received.
    bool const releases_first = splits_backward(plan_.schedule);
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (releases_first)
        release(releases[i]);
      for (std::size_t later : receives[i])
        receive(order[later].work);
      if (!releases_first)
        release(releases[i]);
      add_slot(order[i].work);
      for (std::size_t earlier : sends[i])
        send(order[earlier].work);
    }
    release(releases.back());
  }

private:
  LayerRange layers(Work const& work) const { return stage_.chunks[work.chunk.index()]; }

  // The stage that holds the part `step` further on, if something is sent between it and this one.
  std::optional<Stage> other_end(Work const& work, int step) const {
    int const part = part_of(plan_, stage_.stage, work.chunk) + step;
    if (work.kind == SlotKind::weight_gradient || part < 0 || part >= plan_.pp * plan_.chunks)
      return std::nullopt;
    Stage const stage = stage_of_part(plan_, part);
    return stage == stage_.stage ? std::nullopt : std::optional(stage);
  }

  std::optional<Transfer> incoming(Work const& work) const {
    bool const forward = work.kind == SlotKind::forward;
    std::optional<Stage> const from = other_end(work, forward ? -1 : 1);
    if (!from)
      return std::nullopt;
    Channel::What const what = forward ? Channel::What::activation : Channel::What::gradient;
    return Transfer{{what, *from, stage_.stage}, forward ? layers(work).first : layers(work).last, work.micro_batch};
  }

  std::optional<Transfer> outgoing(Work const& work) const {
    bool const forward = work.kind == SlotKind::forward;
    std::optional<Stage> const to = other_end(work, forward ? 1 : -1);
    if (!to)
      return std::nullopt;
    Channel::What const what = forward ? Channel::What::activation : Channel::What::gradient;
    return Transfer{{what, stage_.stage, *to}, forward ? layers(work).last : layers(work).first, work.micro_batch};
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
    return add_tensor(stage_, boundary_tensor(program_, buffer));
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

void pipeline(Program const& program, StageProgram& stage, std::vector<PlacedWork> const& order) {
  Writer(program, stage).write(order);
}

} // namespace foreplan

// Programs shaped like a pipeline step: 1F1B over pp stages and m micro-batches; a layer's block is compute items with
// tensor-parallel transfers between them; neighbours send and receive on streams of their own.
#pragma once

#include "engine/folded_program.hpp"

#include <algorithm>
#include <string>

namespace foreplan::testing {

struct Pipeline {
  int stages = 4;
  int micro_batches = 8;
  int layers = 2;            // of a stage
  int computes = 10;         // of a layer
  int transfers = 4;         // of a layer, each after its share of the computes; every second one is overlapped
  double issue = 2e-6;       // host seconds of each item
  bool interference = false; // transfers take SMs and memory bandwidth
  bool shared_links = false; // all neighbours send over one link
};

class PipelineProgram {
public:
  explicit PipelineProgram(Pipeline const& shape) : shape_(shape) {}

  FoldedProgram make() {
    auto& p = program_;
    int const pp = shape_.stages;
    for (int s = 0; s < pp; ++s)
      p.classes.push_back({"stage " + std::to_string(s), 8, {}, {}});
    for (int s = 0; s < pp; ++s) {
      p.links.push_back({"NVLink of stage " + std::to_string(s), BytesPerSecond(450e9)});
      p.communicators.push_back({"tp of stage " + std::to_string(s), {s}});
    }
    for (int s = 0; s + 1 < pp; ++s)
      for (int direction = 0; direction < 2; ++direction) {
        p.links.push_back({"NIC", BytesPerSecond(50e9)});
        p.communicators.push_back(
            {direction == 0 ? "activation" : "gradient",
             direction == 0 ? std::vector<std::int32_t>{s, s + 1} : std::vector<std::int32_t>{s + 1, s}});
      }
    for (int s = 0; s < pp; ++s)
      make_stage(s);
    return program_;
  }

private:
  enum Stream : std::uint8_t { compute, tp, dp, send_activation, receive_activation, send_gradient, receive_gradient };

  std::int32_t demand(std::variant<ComputeDemand, TransferDemand> device, bool transfer) {
    Demand made;
    made.issue = made.lead = Seconds(shape_.issue);
    made.device = std::move(device);
    if (shape_.interference) {
      made.sm_share = transfer ? 0.12 : 0;
      made.memory_bandwidth_share = transfer ? 0.2 : 0.9;
    }
    program_.demands.push_back(made);
    return static_cast<std::int32_t>(program_.demands.size()) - 1;
  }

  std::int32_t transfer(double latency, double bytes, double cap, std::int32_t link) {
    return demand(TransferDemand{{{Seconds(latency), {{Bytes(bytes), BytesPerSecond(cap), {{link, 1}}}}}}}, true);
  }

  std::int32_t one_item(std::int32_t demand_index, std::int32_t communicator, std::uint8_t stream) {
    Item item;
    item.demand = demand_index;
    item.communicator = communicator;
    item.stream = stream;
    program_.blocks.push_back({{item}});
    return static_cast<std::int32_t>(program_.blocks.size()) - 1;
  }

  std::int32_t layer(int stage, double slower) {
    Block block;
    int const group = std::max(1, shape_.computes / std::max(1, shape_.transfers));
    std::int32_t last_transfer = wait_for_entry;
    int made = 0;
    for (int c = 0; c < shape_.computes; ++c) {
      Item item;
      item.demand = demand(ComputeDemand{Seconds(slower * (20e-6 + 3e-6 * c + 0.1e-6 * stage))}, false);
      item.stream = compute;
      bool const exposed = last_transfer >= 0 && made % 2 == 0;
      if (exposed && c % group == 0)
        item.waits.push_back(last_transfer);
      block.items.push_back(item);
      if ((c + 1) % group == 0 && made < shape_.transfers) {
        Item comm;
        comm.demand = transfer(12e-6, slower * 8e6, 360e9, stage);
        comm.communicator = stage;
        comm.stream = tp;
        comm.waits.push_back(static_cast<std::int32_t>(block.items.size()) - 1);
        last_transfer = static_cast<std::int32_t>(block.items.size());
        block.items.push_back(comm);
        ++made;
      }
    }
    program_.blocks.push_back(block);
    return static_cast<std::int32_t>(program_.blocks.size()) - 1;
  }

  // Communicator of the channel between stages s and s + 1, and its link.
  std::int32_t channel(int s, bool gradient) const { return shape_.stages + 2 * s + (gradient ? 1 : 0); }
  std::int32_t link(int s, bool gradient) const { return shape_.shared_links ? shape_.stages : channel(s, gradient); }

  void make_stage(int s) {
    RankClass& me = program_.classes[static_cast<std::size_t>(s)];
    std::int32_t const forward = layer(s, 1);
    std::int32_t const backward = layer(s, 2);
    auto const p2p = [&](int between, bool gradient, std::uint8_t stream) {
      return one_item(transfer(4e-6, 16e6, 45e9, link(between, gradient)), channel(between, gradient), stream);
    };
    bool const first = s == 0;
    bool const last = s == shape_.stages - 1;
    std::int32_t const receive_a = first ? -1 : p2p(s - 1, false, receive_activation);
    std::int32_t const send_a = last ? -1 : p2p(s, false, send_activation);
    std::int32_t const receive_g = last ? -1 : p2p(s, true, receive_gradient);
    std::int32_t const send_g = first ? -1 : p2p(s - 1, true, send_gradient);
    std::int32_t const guard = one_item(demand(ComputeDemand{Seconds(0)}, false), -1, compute);

    auto const append = [&](std::int32_t block, std::int32_t wait) {
      Use use{block, static_cast<std::int32_t>(me.waits.size()), wait >= 0 ? 1 : 0};
      if (wait >= 0)
        me.waits.push_back(wait);
      me.uses.push_back(use);
      return static_cast<std::int32_t>(me.uses.size()) - 1;
    };
    auto const slot = [&](std::int32_t receive, std::int32_t block, std::int32_t send) {
      if (receive >= 0)
        append(guard, append(receive, -1));
      std::int32_t end = -1;
      for (int l = 0; l < shape_.layers; ++l)
        end = append(block, -1);
      if (send >= 0)
        append(send, end);
    };
    int const m = shape_.micro_batches;
    int const warmup = std::min(m, shape_.stages - 1 - s);
    for (int j = 0; j < warmup; ++j)
      slot(receive_a, forward, send_a);
    for (int j = warmup; j < m; ++j) {
      slot(receive_a, forward, send_a);
      slot(receive_g, backward, send_g);
    }
    for (int j = 0; j < warmup; ++j)
      slot(receive_g, backward, send_g);
  }

  Pipeline shape_;
  FoldedProgram program_;
};

inline FoldedProgram pipeline_program(Pipeline const& shape) { return PipelineProgram(shape).make(); }

} // namespace foreplan::testing

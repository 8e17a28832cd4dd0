#include "engine/expand.hpp"

#include <map>

namespace foreplan {

namespace {

double chunk(Ring const& ring) { return ring.bytes.value() / static_cast<double>(ring.members.size()); }

std::int32_t append(Block& block, Item item) {
  block.items.push_back(std::move(item));
  return static_cast<std::int32_t>(block.items.size()) - 1;
}

} // namespace

TransferDemand fluid_ring(Ring const& ring) {
  std::map<std::int32_t, std::int32_t> multiplicity;
  for (auto const& links : ring.to_next)
    for (LinkUse const& use : links)
      multiplicity[use.link] += use.multiplicity;
  Flow flow{Bytes(ring.rounds * chunk(ring)), ring.rate_cap, {}};
  for (auto const& [link, count] : multiplicity)
    flow.links.push_back({link, count});
  return {{{ring.latency * ring.rounds, {flow}}}};
}

RingSteps add_ring_steps(FoldedProgram& program, Ring const& ring) {
  std::size_t const n = ring.members.size();
  RingSteps steps;
  steps.first_channel = static_cast<std::int32_t>(program.communicators.size());
  auto const add_demand = [&](std::variant<ComputeDemand, TransferDemand> device) {
    program.demands.emplace_back();
    program.demands.back().device = std::move(device);
    return static_cast<std::int32_t>(program.demands.size()) - 1;
  };
  for (std::size_t i = 0; i < n; ++i) {
    program.communicators.push_back({"ring step", {ring.members[i], ring.members[(i + 1) % n]}});
    Flow const flow{Bytes(chunk(ring)), ring.rate_cap, ring.to_next[i]};
    steps.demands.push_back(add_demand(TransferDemand{{{ring.latency, {flow}}}}));
  }
  steps.nothing = add_demand(ComputeDemand{});
  return steps;
}

std::int32_t append_ring_steps(Block& block, Ring const& ring, RingSteps const& steps, std::size_t member,
                               std::vector<std::int32_t> const& waits) {
  auto const n = ring.members.size();
  std::size_t const previous = (member + n - 1) % n;
  auto const step = [&](std::size_t channel, std::uint8_t stream, std::int32_t wait) {
    return Item{.demand = steps.demands[channel],
                .communicator = steps.first_channel + static_cast<std::int32_t>(channel),
                .stream = stream,
                .waits = {wait}};
  };
  std::int32_t const begin = append(block, {.demand = steps.nothing, .stream = ring.stream, .waits = waits});
  std::int32_t sent = begin;
  std::int32_t received = begin;
  for (int round = 0; round < ring.rounds; ++round) {
    sent = append(block, step(member, ring.send_stream, received));
    received = append(block, step(previous, ring.receive_stream, begin));
  }
  return append(block, {.demand = steps.nothing, .stream = ring.stream, .waits = {sent, received}});
}

} // namespace foreplan

#include "engine/program_walk.hpp"

#include <cmath>
#include <fmt/format.h>
#include <stdexcept>

namespace foreplan {

namespace {

template <class... Arguments>
void require(bool right, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  if (!right)
    throw std::invalid_argument("folded program: " + fmt::format(text, std::forward<Arguments>(arguments)...));
}

bool inside(std::int64_t index, std::size_t size) { return index >= 0 && index < static_cast<std::int64_t>(size); }

// A duration or share that may be nothing.
bool amount(double value) { return value >= 0 && std::isfinite(value); }

class DemandCheck {
public:
  explicit DemandCheck(FoldedProgram const& program) : program_(program), last_flow_(program.links.size(), -1) {}

  void check(std::size_t number) {
    Demand const& demand = program_.demands[number];
    require(amount(demand.issue.value()), "demand {}: issue of {} s", number, demand.issue.value());
    require(std::isfinite(demand.lead.value()), "demand {}: lead of {} s", number, demand.lead.value());
    require(amount(demand.sm_share) && amount(demand.memory_bandwidth_share), "demand {}: share below 0", number);
    if (auto const* compute = std::get_if<ComputeDemand>(&demand.device))
      require(amount(compute->alone.value()), "demand {}: {} s alone", number, compute->alone.value());
    else
      for (Phase const& phase : std::get<TransferDemand>(demand.device).phases)
        check(number, phase);
  }

private:
  void check(std::size_t number, Phase const& phase) {
    require(amount(phase.latency.value()), "demand {}: latency of {} s", number, phase.latency.value());
    for (Flow const& flow : phase.flows) {
      ++flows_;
      require(flow.bytes.value() > 0 && amount(flow.bytes.value()), "demand {}: a flow of {} bytes", number,
              flow.bytes.value());
      require(flow.rate_cap.value() > 0, "demand {}: rate cap {}", number, flow.rate_cap.value());
      require(std::isfinite(flow.rate_cap.value()) || !flow.links.empty(), "demand {}: unbounded flow", number);
      for (LinkUse const& use : flow.links) {
        require(inside(use.link, program_.links.size()), "demand {}: link {}", number, use.link);
        require(use.multiplicity > 0, "demand {}: multiplicity {}", number, use.multiplicity);
        auto& last = last_flow_[static_cast<std::size_t>(use.link)];
        require(last != flows_, "demand {}: a flow names link {} twice", number, use.link);
        last = flows_;
      }
    }
  }

  FoldedProgram const& program_;
  std::vector<std::int64_t> last_flow_; // by link: the flow that named it last
  std::int64_t flows_ = 0;
};

void check_block(FoldedProgram const& program, std::size_t number) {
  Block const& block = program.blocks[number];
  for (std::size_t i = 0; i < block.items.size(); ++i) {
    Item const& item = block.items[i];
    require(inside(item.demand, program.demands.size()), "block {} item {}: demand {}", number, i, item.demand);
    require(item.stream < stream_limit, "block {} item {}: stream {}", number, i, int{item.stream});
    require(!item.host_sync || block.items.size() == 1, "block {}: host_sync needs a block of one item", number);
    bool const transfer = program.demands[static_cast<std::size_t>(item.demand)].device.index() == 1;
    require(transfer ? inside(item.communicator, program.communicators.size()) : item.communicator == -1,
            "block {} item {}: communicator {} of a {}", number, i, item.communicator,
            transfer ? "transfer" : "computation");
    for (std::int32_t wait : item.waits)
      require((wait < 0 && wait > wait_for_last(stream_limit)) || inside(wait, i), "block {} item {} waits for item {}",
              number, i, wait);
  }
}

void check_class(FoldedProgram const& program, RankClass const& rank_class) {
  for (std::size_t u = 0; u < rank_class.uses.size(); ++u) {
    Use const& use = rank_class.uses[u];
    require(inside(use.block, program.blocks.size()), "class '{}' use {}: block {}", rank_class.name, u, use.block);
    if (use.wait_count == 0)
      continue;
    require(program.blocks[static_cast<std::size_t>(use.block)].items.size() == 1,
            "class '{}' use {}: waits need a block of one item", rank_class.name, u);
    require(use.first_wait >= 0 && use.wait_count >= 0 &&
                inside(std::int64_t{use.first_wait} + use.wait_count - 1, rank_class.waits.size()),
            "class '{}' use {}: waits out of range", rank_class.name, u);
    for (std::int32_t w = use.first_wait; w < use.first_wait + use.wait_count; ++w) {
      std::int32_t const target = rank_class.waits[static_cast<std::size_t>(w)];
      require(inside(target, u), "class '{}' use {} waits for use {}", rank_class.name, u, target);
      auto const block = static_cast<std::size_t>(rank_class.uses[static_cast<std::size_t>(target)].block);
      require(!program.blocks[block].items.empty(), "class '{}' use {} waits for an empty use", rank_class.name, u);
    }
  }
}

} // namespace

void check(FoldedProgram const& program) {
  for (LinkOrbit const& link : program.links)
    require(link.capacity.value() > 0 && std::isfinite(link.capacity.value()), "capacity of link '{}'", link.name);
  DemandCheck demands(program);
  for (std::size_t i = 0; i < program.demands.size(); ++i)
    demands.check(i);
  for (Communicator const& communicator : program.communicators) {
    require(!communicator.members.empty(), "communicator '{}' has no members", communicator.name);
    for (std::int32_t member : communicator.members)
      require(inside(member, program.classes.size()), "communicator '{}': class {}", communicator.name, member);
  }
  for (std::size_t i = 0; i < program.blocks.size(); ++i)
    check_block(program, i);
  for (RankClass const& rank_class : program.classes)
    check_class(program, rank_class);
}

} // namespace foreplan

// Random folded programs that use every feature of folded_program.hpp and cannot deadlock: they are made in one global
// order (an op = a computation of one class, or a transfer of a communicator) and cut by class.
#pragma once

#include "engine/folded_program.hpp"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace foreplan::testing {

struct Features {
  bool interference = true;
  bool host = true; // issue costs, leads, sync points
  bool multiplicities = true;
  bool pairs = false; // communicators of two members only, as point-to-point channels
};

class RandomProgram {
public:
  RandomProgram(unsigned seed, Features features) : random_(seed), features_(features) {}

  FoldedProgram make() {
    make_machine();
    make_communicators();
    int const templates = whole(2, 5);
    for (int t = 0; t < templates; ++t)
      make_template(chance(0.4) ? 1 : whole(2, 8));
    int const uses = whole(4, 14);
    for (int u = 0; u < uses; ++u)
      use(templates_[static_cast<std::size_t>(whole(0, templates - 1))]);
    return program_;
  }

private:
  // By class: the block, or -1.
  using Template = std::vector<int>;

  double real(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }
  int whole(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(double p) { return real(0, 1) < p; }
  int classes() const { return static_cast<int>(program_.classes.size()); }

  void make_machine() {
    int const links = whole(1, 5);
    for (int l = 0; l < links; ++l)
      program_.links.push_back({"link " + std::to_string(l), BytesPerSecond(real(20, 200))});
    program_.classes.resize(static_cast<std::size_t>(whole(features_.pairs ? 2 : 1, 5)));
    for (int c = 0; c < classes(); ++c)
      program_.classes[static_cast<std::size_t>(c)].name = "class " + std::to_string(c);
  }

  void make_communicators() {
    int const count = whole(1, 6);
    for (int k = 0; k < count; ++k) {
      std::vector<std::int32_t> members(program_.classes.size());
      for (int c = 0; c < classes(); ++c)
        members[static_cast<std::size_t>(c)] = c;
      std::shuffle(members.begin(), members.end(), random_);
      members.resize(features_.pairs ? 2 : static_cast<std::size_t>(whole(1, classes())));
      program_.communicators.push_back({"communicator " + std::to_string(k), members});
      std::vector<std::uint8_t> streams;
      for (std::size_t m = 0; m < members.size(); ++m)
        streams.push_back(static_cast<std::uint8_t>(whole(chance(0.2) ? 0 : 1, stream_limit - 1)));
      streams_.push_back(streams);
    }
  }

  std::int32_t add_demand(std::variant<ComputeDemand, TransferDemand> device) {
    Demand demand;
    demand.device = std::move(device);
    if (features_.host && chance(0.7)) {
      demand.issue = Seconds(real(0, 0.3));
      demand.lead = chance(0.6) ? demand.issue : Seconds(real(0, 0.5));
    }
    if (features_.interference && chance(0.7)) {
      demand.sm_share = chance(0.7) ? real(0, 0.5) : real(0, 1.2);
      demand.memory_bandwidth_share = chance(0.8) ? real(0, 0.8) : real(0, 1.5);
    }
    program_.demands.push_back(demand);
    return static_cast<std::int32_t>(program_.demands.size()) - 1;
  }

  Flow random_flow() {
    Flow flow;
    flow.bytes = Bytes(real(0.1, 60));
    for (std::size_t l = 0; l < program_.links.size(); ++l)
      if (chance(0.5))
        flow.links.push_back(
            {static_cast<std::int32_t>(l), chance(0.6) || !features_.multiplicities ? 1 : whole(1, 4)});
    bool const free = !flow.links.empty() && chance(0.2);
    flow.rate_cap = BytesPerSecond(free ? std::numeric_limits<double>::infinity() : real(5, 150));
    return flow;
  }

  TransferDemand random_transfer() {
    TransferDemand transfer;
    transfer.phases.resize(static_cast<std::size_t>(chance(0.7) ? 1 : whole(0, 3)));
    for (Phase& phase : transfer.phases) {
      phase.latency = Seconds(chance(0.3) ? 0 : chance(0.5) ? real(0, 1e-4) : real(0, 0.2));
      phase.flows.resize(static_cast<std::size_t>(chance(0.6) ? 1 : whole(0, 4)));
      for (Flow& flow : phase.flows)
        flow = random_flow();
    }
    return transfer;
  }

  void make_template(int ops) {
    std::vector<Block> blocks(program_.classes.size());
    bool const sync = ops == 1 && features_.host && chance(0.4);
    auto const append = [&](int c, Item item) {
      auto& items = blocks[static_cast<std::size_t>(c)].items;
      if (chance(0.3))
        item.waits.push_back(wait_for_entry);
      for (std::size_t i = 0; i < items.size(); ++i)
        if (chance(0.25))
          item.waits.push_back(static_cast<std::int32_t>(i));
      item.host_sync = sync;
      items.push_back(item);
    };
    for (int o = 0; o < ops; ++o) {
      if (chance(0.5)) {
        Item item;
        item.demand = add_demand(ComputeDemand{Seconds(chance(0.1) ? 0 : real(0.01, 1))});
        item.stream = static_cast<std::uint8_t>(chance(0.7) ? 0 : whole(0, stream_limit - 1));
        append(whole(0, classes() - 1), item);
        continue;
      }
      auto const k = static_cast<std::size_t>(whole(0, static_cast<int>(program_.communicators.size()) - 1));
      TransferDemand const transfer = random_transfer();
      for (std::size_t m = 0; m < streams_[k].size(); ++m) {
        Item item;
        item.demand = add_demand(transfer);
        item.communicator = static_cast<std::int32_t>(k);
        item.stream = streams_[k][m];
        append(program_.communicators[k].members[m], item);
      }
    }
    Template made;
    for (Block const& block : blocks) {
      made.push_back(block.items.empty() ? -1 : static_cast<int>(program_.blocks.size()));
      if (!block.items.empty())
        program_.blocks.push_back(block);
    }
    templates_.push_back(made);
  }

  void use(Template const& blocks) {
    for (std::size_t c = 0; c < blocks.size(); ++c) {
      if (blocks[c] < 0)
        continue;
      RankClass& rank_class = program_.classes[c];
      Use made{blocks[c], static_cast<std::int32_t>(rank_class.waits.size()), 0};
      if (program_.blocks[static_cast<std::size_t>(blocks[c])].items.size() == 1)
        for (std::size_t u = 0; u < rank_class.uses.size(); ++u)
          if (chance(0.15)) {
            rank_class.waits.push_back(static_cast<std::int32_t>(u));
            ++made.wait_count;
          }
      rank_class.uses.push_back(made);
    }
  }

  std::mt19937 random_;
  Features features_;
  FoldedProgram program_;
  std::vector<std::vector<std::uint8_t>> streams_; // by communicator and member
  std::vector<Template> templates_;
};

} // namespace foreplan::testing

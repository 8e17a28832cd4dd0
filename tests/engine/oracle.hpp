// The semantics of folded_program.hpp once more, as plainly as possible and sharing no code with the engines: every
// item is listed, and at every event all speeds and rates are computed anew. Slow; for tests.
#pragma once

#include "engine/folded_program.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

namespace oracle {

using namespace foreplan;

inline constexpr double never = std::numeric_limits<double>::infinity();

struct Instance {
  Demand const* demand = nullptr;
  int rank_class = 0;
  int stream = 0;
  int use = 0;
  int item = 0;
  int transfer = -1; // into State::transfers
  bool host_sync = false;
  std::vector<int> after; // instances that must have ended: waits and the one before on the stream
  double issue_begin = never;
  bool ended = false;
  double arrival = 0; // all of `after` have ended
  double start = never;
  double end = never;
  double left = 0; // compute: seconds at speed 1
};

struct Transfer {
  std::vector<int> members; // instances
  TransferDemand const* demand = nullptr;
  std::size_t phase = 0;
  double latency_left = 0;
  std::vector<double> bytes_left; // by flow of the phase
  bool started = false;
  bool ended = false;
};

struct State {
  FoldedProgram const& program;
  std::vector<Instance> instances;        // class by class, in issue order
  std::vector<std::vector<int>> by_class; // instances
  std::vector<Transfer> transfers;
  double now = 0;
};

inline State list_everything(FoldedProgram const& program) {
  State state{program, {}, {}, {}, 0};
  std::vector<std::vector<std::vector<int>>> of_communicator(program.communicators.size()); // [member][k]
  for (std::size_t k = 0; k < program.communicators.size(); ++k)
    of_communicator[k].resize(program.communicators[k].members.size());
  for (std::size_t c = 0; c < program.classes.size(); ++c) {
    state.by_class.emplace_back();
    std::vector<int> last_of_stream(stream_limit, -1);
    std::vector<int> last_of_use;
    for (std::size_t u = 0; u < program.classes[c].uses.size(); ++u) {
      Use const& use = program.classes[c].uses[u];
      Block const& block = program.blocks[static_cast<std::size_t>(use.block)];
      std::vector<int> const before = last_of_stream;
      int const first = static_cast<int>(state.instances.size());
      for (std::size_t i = 0; i < block.items.size(); ++i) {
        Item const& item = block.items[i];
        int const self = static_cast<int>(state.instances.size());
        Instance instance;
        instance.demand = &program.demands[static_cast<std::size_t>(item.demand)];
        instance.rank_class = static_cast<int>(c);
        instance.stream = item.stream;
        instance.use = static_cast<int>(u);
        instance.item = static_cast<int>(i);
        instance.host_sync = item.host_sync;
        instance.after.push_back(last_of_stream[item.stream]);
        for (int wait : item.waits)
          instance.after.push_back(wait < 0 ? before[static_cast<std::size_t>(wait_for_entry - wait)] : first + wait);
        for (int w = 0; w < use.wait_count; ++w)
          instance.after.push_back(last_of_use[static_cast<std::size_t>(
              program.classes[c].waits[static_cast<std::size_t>(use.first_wait + w)])]);
        std::erase(instance.after, -1);
        if (auto const* compute = std::get_if<ComputeDemand>(&instance.demand->device))
          instance.left = compute->alone.value();
        else {
          auto const& members = program.communicators[static_cast<std::size_t>(item.communicator)].members;
          auto const m = std::find(members.begin(), members.end(), static_cast<int>(c)) - members.begin();
          of_communicator[static_cast<std::size_t>(item.communicator)][static_cast<std::size_t>(m)].push_back(self);
        }
        last_of_stream[item.stream] = self;
        state.by_class[c].push_back(self);
        state.instances.push_back(instance);
      }
      last_of_use.push_back(static_cast<int>(state.instances.size()) - 1);
    }
  }
  for (auto const& members : of_communicator)
    for (std::size_t k = 0; k < members[0].size(); ++k) {
      Transfer transfer;
      for (auto const& member : members) {
        transfer.members.push_back(member.at(k));
        state.instances[static_cast<std::size_t>(member[k])].transfer = static_cast<int>(state.transfers.size());
      }
      auto const& first = state.instances[static_cast<std::size_t>(transfer.members[0])];
      transfer.demand = &std::get<TransferDemand>(first.demand->device);
      state.transfers.push_back(transfer);
    }
  return state;
}

// Issue times of one class as far as they follow from what has ended.
inline void issue(State& state, std::vector<int> const& order) {
  double host = 0;
  for (int number : order) {
    Instance& x = state.instances[static_cast<std::size_t>(number)];
    x.issue_begin = host;
    host += x.demand->issue.value();
    if (x.host_sync && !x.ended)
      return;
    if (x.host_sync)
      host = std::max(host, x.end);
  }
}

inline double earliest(Instance const& x) { return x.issue_begin + x.demand->lead.value(); }

inline bool may_start(State const& state, Instance const& x) {
  for (int other : x.after)
    if (!state.instances[static_cast<std::size_t>(other)].ended)
      return false;
  return earliest(x) <= state.now;
}

inline bool running(Instance const& x) { return x.start != never && !x.ended; }

inline double speed(State const& state, Instance const& x) {
  double others = 0;
  double bandwidth = 0;
  for (Instance const& y : state.instances) {
    if (y.rank_class != x.rank_class || !running(y))
      continue;
    bandwidth += y.demand->memory_bandwidth_share;
    if (&y != &x)
      others += y.demand->sm_share;
  }
  return std::max(0.01, std::min(1 - others, 1 / std::max(1.0, bandwidth)));
}

// Starts, ends and phases that follow at this moment, until nothing changes.
inline void settle(State& state) {
  auto const end = [&](Instance& x) {
    x.ended = true;
    x.end = state.now;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto const& order : state.by_class)
      issue(state, order);
    for (Instance& x : state.instances) {
      if (x.transfer >= 0 || x.ended)
        continue;
      if (x.start == never && may_start(state, x)) {
        x.start = state.now;
        changed = true;
      }
      if (x.start != never && x.left <= 0) {
        end(x);
        changed = true;
      }
    }
    for (Transfer& t : state.transfers) {
      if (t.ended)
        continue;
      auto const begin_phase = [&] {
        if (t.phase == t.demand->phases.size())
          return;
        t.latency_left = t.demand->phases[t.phase].latency.value();
        t.bytes_left.clear();
        for (Flow const& flow : t.demand->phases[t.phase].flows)
          t.bytes_left.push_back(flow.bytes.value());
      };
      if (!t.started) {
        bool all = true;
        for (int m : t.members)
          all = all && may_start(state, state.instances[static_cast<std::size_t>(m)]);
        if (!all)
          continue;
        t.started = true;
        for (int m : t.members)
          state.instances[static_cast<std::size_t>(m)].start = state.now;
        begin_phase();
        changed = true;
      }
      while (t.phase < t.demand->phases.size() && t.latency_left <= 0 &&
             std::all_of(t.bytes_left.begin(), t.bytes_left.end(), [](double b) { return b <= 0; })) {
        ++t.phase;
        begin_phase();
        changed = true;
      }
      if (t.phase == t.demand->phases.size()) {
        t.ended = true;
        for (int m : t.members)
          end(state.instances[static_cast<std::size_t>(m)]);
        changed = true;
      }
    }
  }
}

struct ActiveFlow {
  Flow const* flow;
  double* left;
  double bound;
  double rate = -1;
};

// Progressive filling over all flows and all links of the machine.
inline std::vector<ActiveFlow> share(State& state) {
  std::vector<ActiveFlow> flows;
  for (Transfer& t : state.transfers) {
    if (!t.started || t.ended || t.latency_left > 0)
      continue;
    double slowest = 1;
    for (int m : t.members)
      slowest = std::min(slowest, speed(state, state.instances[static_cast<std::size_t>(m)]));
    auto const& phase = t.demand->phases[t.phase];
    for (std::size_t f = 0; f < phase.flows.size(); ++f)
      if (t.bytes_left[f] > 0)
        flows.push_back({&phase.flows[f], &t.bytes_left[f], phase.flows[f].rate_cap.value() * slowest});
  }
  std::size_t fixed = 0;
  while (fixed < flows.size()) {
    double level = never; // the highest common rate of the flows not fixed
    for (ActiveFlow const& f : flows)
      if (f.rate < 0)
        level = std::min(level, f.bound);
    std::vector<double> link_level(state.program.links.size(), never);
    for (std::size_t l = 0; l < link_level.size(); ++l) {
      double left = state.program.links[l].capacity.value();
      double weight = 0;
      for (ActiveFlow const& f : flows)
        for (LinkUse const& use : f.flow->links)
          if (use.link == static_cast<int>(l)) {
            if (f.rate < 0)
              weight += use.multiplicity;
            else
              left -= f.rate * use.multiplicity;
          }
      if (weight > 0)
        link_level[l] = left / weight;
      level = std::min(level, link_level[l]);
    }
    for (ActiveFlow& f : flows) {
      if (f.rate >= 0)
        continue;
      bool stops = f.bound <= level * (1 + 1e-13);
      for (LinkUse const& use : f.flow->links)
        stops = stops || link_level[static_cast<std::size_t>(use.link)] <= level * (1 + 1e-13);
      if (stops) {
        f.rate = level;
        ++fixed;
      }
    }
  }
  return flows;
}

// Takes `rate * step` off; exactly nothing is left of what ends in this step.
inline void progress(double& left, double rate, double step) { left = left / rate <= step ? 0 : left - rate * step; }

// All items of each class in issue order, with starts and ends.
inline std::vector<std::vector<Instance>> run(FoldedProgram const& program) {
  State state = list_everything(program);
  for (settle(state);; settle(state)) {
    double step = never;
    std::vector<double> speeds(state.instances.size(), 0);
    for (std::size_t i = 0; i < state.instances.size(); ++i) {
      Instance const& x = state.instances[i];
      if (x.start == never && x.issue_begin != never && earliest(x) > state.now)
        step = std::min(step, earliest(x) - state.now);
      if (!running(x) || x.transfer >= 0)
        continue;
      speeds[i] = speed(state, x);
      step = std::min(step, x.left / speeds[i]);
    }
    std::vector<ActiveFlow> flows = share(state);
    for (ActiveFlow const& f : flows)
      step = std::min(step, *f.left / f.rate);
    for (Transfer const& t : state.transfers)
      if (t.started && !t.ended && t.latency_left > 0)
        step = std::min(step, t.latency_left);
    if (step == never)
      break;

    double const next = std::max(state.now + step, std::nextafter(state.now, never));
    for (std::size_t i = 0; i < state.instances.size(); ++i)
      if (speeds[i] > 0)
        progress(state.instances[i].left, speeds[i], step);
    for (ActiveFlow const& f : flows)
      progress(*f.left, f.rate, step);
    for (Transfer& t : state.transfers)
      if (t.started && !t.ended && t.latency_left > 0)
        progress(t.latency_left, 1, step);
    state.now = next;
  }
  std::vector<std::vector<Instance>> result;
  for (auto const& order : state.by_class) {
    result.emplace_back();
    for (int number : order) {
      if (!state.instances[static_cast<std::size_t>(number)].ended)
        throw std::runtime_error("stuck");
      Instance x = state.instances[static_cast<std::size_t>(number)];
      for (int other : x.after)
        x.arrival = std::max(x.arrival, state.instances[static_cast<std::size_t>(other)].end);
      result.back().push_back(x);
    }
  }
  return result;
}

} // namespace oracle

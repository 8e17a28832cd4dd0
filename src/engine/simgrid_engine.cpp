// The reference engine: SimGrid shares the links, our walk decides what starts when.
//
// An activity exists only from the moment its work starts. Compute items (and waits for the host) are Execs on a host
// of their stream; on a device with interference they are Comms over a private link whose bandwidth is their speed. A
// flow is a Comm on a virtual host whose loopback route is [carrier, links...]. The carrier is private to the route
// and does three things:
//  - its latency is 1 s times a factor asked for at each start, so every flow has its own latency, while SimGrid's
//    weight of a flow (the route's nominal latency) is 1 for all: fair shares;
//  - its bandwidth is the flow's rate cap at the present speed of its transfer;
//  - it stands first, which keeps SimGrid's lazy solver right: that one marks only what shares the first link of a
//    flow that comes or goes.
#include "engine/engine.hpp"
#include "engine/interference.hpp"
#include "engine/program_walk.hpp"

#include <simgrid/kernel/resource/NetworkModelIntf.hpp>
#include <simgrid/s4u.hpp>
#include <simgrid/version.h>
#include <xbt/log.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace foreplan {

namespace {

namespace sg4 = simgrid::s4u;

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

class SimGridEngine;

// The work of a stream's head, of a transfer's latency phase, or of a flow. It is the data of its SimGrid activity.
struct Work {
  enum class Kind : std::uint8_t { idle, issue, compute, latency, flow };
  SimGridEngine* engine = nullptr;
  Kind kind = Kind::idle;
  std::int32_t index = 0; // class * stream_limit + stream, or communicator
  sg4::ActivityPtr activity;
};

struct Route {
  sg4::Host* host = nullptr;
  sg4::Link* carrier = nullptr;
  double bandwidth = 0; // of the carrier, in SimGrid's units
};

struct Device {
  std::array<sg4::Host*, stream_limit> host{};
  std::array<Route, stream_limit> route{}; // of computations, where they interfere
  std::array<Work, stream_limit> work{};
  bool interferes = false; // some item of the class has shares
};

struct FlowRoute {
  Route route;
  Work work;
  double rate_cap = 0; // of the flow that runs
  double most = 0;     // bandwidth of the carrier that leaves all limits to the links
};

struct Transfer {
  TransferDemand const* demand = nullptr;
  std::size_t phase = 0;
  std::vector<FlowRoute*> running;
  bool flows_due = false; // to be started once the speeds are known
  double speed = 0;
  bool changed = false;
  sg4::Host* host = nullptr; // of phases without flows
  Work work;
  std::map<std::pair<std::size_t, std::vector<LinkUse>>, std::size_t> known; // (position in phase, links) -> route
  std::unordered_map<Flow const*, std::size_t> route_of;
  std::vector<FlowRoute> routes;
};

// SimGrid counts whole bytes: the factor that makes the largest amount about 2^62 of them.
double scale_for(double largest) { return largest > 0 ? std::exp2(std::floor(61 - std::log2(largest))) : 1; }

std::uint64_t whole(double amount) {
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(amount)));
}

// Calls visit(class, item) for the items of every block that the class uses, once a block.
template <class Visit>
void for_each_item(FoldedProgram const& program, Visit&& visit) {
  std::vector<std::int32_t> visited(program.blocks.size(), -1); // by block: the last class that was seen to use it
  for (std::int32_t c = 0; c < static_cast<std::int32_t>(program.classes.size()); ++c)
    for (Use const& use : program.classes[at(c)].uses)
      if (std::exchange(visited[at(use.block)], c) != c)
        for (Item const& item : program.blocks[at(use.block)].items)
          visit(c, item);
}

class SimGridEngine {
public:
  SimGridEngine(FoldedProgram const& program, RunOptions options);
  Timeline run();
  void completed(Work& work);

private:
  bool find_link_units();
  void build_devices();
  void build_links();
  void build_routes();
  void add_routes(std::int32_t communicator, TransferDemand const& demand);
  Route make_route(std::string const& name, std::vector<LinkUse> const& links);
  void take_actions();
  void start_compute(int rank_class, int stream);
  void start_transfer(int communicator);
  void continue_transfer(int communicator);
  void start_flows(int communicator);
  void flow_ended(Work& work);
  void settle();
  void set_speed(int rank_class, int stream, std::int32_t communicator, double before, double speed);
  void mark(std::int32_t communicator);
  void settle_transfer(int communicator);
  void start_exec(Work& work, sg4::Host* host, double seconds);
  void start_comm(Work& work, Route& route, double amount, double full_bandwidth, double bandwidth, double latency);
  void set_bandwidth(Route& route, double bandwidth);
  [[nodiscard]] double now() const { return sg4::Engine::get_clock() - begin_; }

  FoldedProgram const& program_;
  ProgramWalk walk_;
  Interference interference_;
  std::string name_ = "foreplan";
  std::array<char*, 2> arguments_{name_.data(), nullptr};
  int argument_count_ = 1;
  sg4::Engine engine_;
  sg4::NetZone* zone_ = nullptr;
  double latency_to_come_ = 0; // of the flow that is being started
  double begin_ = 0;           // SimGrid's clock goes on from one Engine to the next
  double byte_scale_ = 1;
  double second_scale_ = 1;
  std::vector<sg4::Link*> links_;
  std::vector<std::int32_t> link_unit_; // greatest common divisor of all multiplicities on the link
  std::vector<Device> devices_;
  std::vector<Transfer> transfers_;
  std::vector<std::int32_t> changed_transfers_;
  sg4::ActivityPtr ended_; // kept until another one ends: not destroyed in its own callback
};

// ----------------------------------------------------------------------------------------------------------- platform

// Settings and the callback belong to the process: made once, after the first Engine.
void prepare_simgrid() {
  static bool const prepared = [] {
    xbt_log_control_set("root.thres:error");           // first, or every setting below is logged
    sg4::Engine::set_config("network/model:CM02");     // the default LV08 multiplies latency by 13, bandwidth by 0.97
    sg4::Engine::set_config("network/crosstraffic:0"); // the default adds 5 % of reverse traffic
    sg4::Engine::set_config("network/TCP-gamma:1e300");
    sg4::Engine::set_config("network/weight-S:0");
#if SIMGRID_VERSION >= 33400
    sg4::Engine::set_config("precision/timing:1e-12");
    sg4::Engine::set_config("precision/work-amount:1e-12");
#else
    sg4::Engine::set_config("surf/precision:1e-12");
    sg4::Engine::set_config("maxmin/precision:1e-12");
#endif
    auto const completed = [](sg4::Activity const& activity) {
      auto* work = activity.get_data<Work>();
      work->engine->completed(*work);
    };
#if SIMGRID_VERSION >= 33400
    sg4::Exec::on_completion_cb(completed);
    sg4::Comm::on_completion_cb(completed);
#else
    sg4::Activity::on_completion_cb(completed);
#endif
    return true;
  }();
  static_cast<void>(prepared);
}

// A Star zone drops a link that a route names twice; a Full zone keeps it, and a table of all pairs of hosts.
sg4::NetZone* new_zone([[maybe_unused]] sg4::Engine& engine, bool routes_repeat_links) {
#if SIMGRID_VERSION >= 40000
  return routes_repeat_links ? engine.get_netzone_root() : engine.get_netzone_root()->add_netzone_star("star");
#else
  return routes_repeat_links ? sg4::create_full_zone("root") : sg4::create_star_zone("root");
#endif
}

SimGridEngine::SimGridEngine(FoldedProgram const& program, RunOptions options)
    : program_(program), walk_(program, options), interference_(program.classes.size()),
      engine_(&argument_count_, arguments_.data()), devices_(program.classes.size()),
      transfers_(program.communicators.size()) {
  prepare_simgrid();
  begin_ = sg4::Engine::get_clock();
  bool const repeats = find_link_units();
  zone_ = new_zone(engine_, repeats);
  double most_bytes = 0;
  double most_seconds = 0;
  for (Demand const& demand : program.demands) {
    if (auto const* compute = std::get_if<ComputeDemand>(&demand.device))
      most_seconds = std::max(most_seconds, compute->alone.value());
    else
      for (Phase const& phase : std::get<TransferDemand>(demand.device).phases)
        for (Flow const& flow : phase.flows)
          most_bytes = std::max(most_bytes, flow.bytes.value());
  }
  byte_scale_ = scale_for(most_bytes);
  second_scale_ = scale_for(most_seconds);
  build_links();
  build_devices();
  build_routes();
  zone_->seal();
  auto const latency = [this](double, sg4::Host const*, sg4::Host const*, std::vector<sg4::Link*> const&,
                              std::unordered_set<sg4::NetZone*> const&) { return latency_to_come_; };
#if SIMGRID_VERSION >= 40000
  zone_->set_latency_factor_cb(latency);
#else
  zone_->get_network_model()->set_lat_factor_cb(latency);
#endif
}

// Multiplicities count in units of their greatest common divisor on the link. Returns whether some are still above one.
bool SimGridEngine::find_link_units() {
  link_unit_.assign(program_.links.size(), 0);
  std::vector<std::int32_t> largest(program_.links.size(), 0);
  for (Demand const& demand : program_.demands)
    if (auto const* transfer = std::get_if<TransferDemand>(&demand.device))
      for (Phase const& phase : transfer->phases)
        for (Flow const& flow : phase.flows)
          for (LinkUse const& use : flow.links) {
            link_unit_[at(use.link)] = std::gcd(link_unit_[at(use.link)], use.multiplicity);
            largest[at(use.link)] = std::max(largest[at(use.link)], use.multiplicity);
          }
  return largest != link_unit_;
}

void SimGridEngine::build_links() {
  for (std::size_t l = 0; l < program_.links.size(); ++l) {
    double const capacity = program_.links[l].capacity.value() / std::max(1, link_unit_[l]);
    links_.push_back(zone_->create_link("link" + std::to_string(l), capacity * byte_scale_)->seal());
  }
}

void SimGridEngine::build_devices() {
  std::vector<std::uint32_t> streams(devices_.size());
  for_each_item(program_, [&](std::int32_t rank_class, Item const& item) {
    Demand const& demand = program_.demands[at(item.demand)];
    streams[at(rank_class)] |= stream_bit(item.stream);
    devices_[at(rank_class)].interferes |= demand.sm_share > 0 || demand.memory_bandwidth_share > 0;
  });
  for (std::size_t c = 0; c < devices_.size(); ++c) {
    Device& device = devices_[c];
    for_each_stream(streams[c], [&](int s) {
      auto const name = "device" + std::to_string(c) + "stream" + std::to_string(s);
      device.host[at(s)] = zone_->create_host(name, 1.0)->seal();
      if (device.interferes)
        device.route[at(s)] = make_route(name + "speed", {});
      device.work[at(s)].engine = this;
      device.work[at(s)].index = static_cast<std::int32_t>(c) * stream_limit + s;
    });
  }
}

// The routes of a communicator are those of the demands that its first member brings.
void SimGridEngine::build_routes() {
  for (std::size_t k = 0; k < transfers_.size(); ++k) {
    transfers_[k].host = zone_->create_host("communicator" + std::to_string(k), 1.0)->seal();
    transfers_[k].work.engine = this;
    transfers_[k].work.index = static_cast<std::int32_t>(k);
  }
  for_each_item(program_, [&](std::int32_t rank_class, Item const& item) {
    if (item.communicator >= 0 && program_.communicators[at(item.communicator)].members[0] == rank_class)
      add_routes(item.communicator, std::get<TransferDemand>(program_.demands[at(item.demand)].device));
  });
}

// A route for each list of links and position in its phase: flows of one phase never meet on a route.
void SimGridEngine::add_routes(std::int32_t communicator, TransferDemand const& demand) {
  Transfer& transfer = transfers_[at(communicator)];
  for (Phase const& phase : demand.phases)
    for (std::size_t f = 0; f < phase.flows.size(); ++f) {
      auto const [place, added] = transfer.known.try_emplace({f, phase.flows[f].links}, transfer.routes.size());
      if (added) {
        auto const name = "flow" + std::to_string(communicator) + "_" + std::to_string(place->second);
        transfer.routes.emplace_back().route = make_route(name, phase.flows[f].links);
      }
      transfer.route_of[&phase.flows[f]] = place->second;
    }
}

Route SimGridEngine::make_route(std::string const& name, std::vector<LinkUse> const& links) {
  Route route;
  route.bandwidth = 1;
  route.host = zone_->create_host(name, 1.0);
  route.carrier = zone_->create_link(name, route.bandwidth)->set_latency(1.0)->seal();
  std::vector<sg4::LinkInRoute> path{sg4::LinkInRoute(route.carrier)};
  for (LinkUse const& use : links)
    path.insert(path.end(), at(use.multiplicity / link_unit_[at(use.link)]), sg4::LinkInRoute(links_[at(use.link)]));
#if SIMGRID_VERSION >= 33500
  zone_->add_route(route.host, route.host, path, false);
#else
  zone_->add_route(route.host->get_netpoint(), route.host->get_netpoint(), nullptr, nullptr, path, false);
#endif
  route.host->seal();
  return route;
}

// --------------------------------------------------------------------------------------------------------- activities

void SimGridEngine::start_exec(Work& work, sg4::Host* host, double seconds) {
  auto exec = sg4::Exec::init();
  exec->set_flops_amount(seconds);
  exec->set_data(&work);
  work.activity = exec;
  exec->set_host(host);
  exec->start();
}

// SimGrid bounds a Comm for ever by the least bandwidth of its route at its start, so the carrier first has the most
// that it may ever have.
void SimGridEngine::start_comm(Work& work, Route& route, double amount, double full_bandwidth, double bandwidth,
                               double latency) {
  set_bandwidth(route, full_bandwidth);
  auto comm = sg4::Comm::sendto_init();
  comm->set_data(&work);
  comm->set_payload_size(whole(amount)); // never 0: such a Comm does not start
  work.activity = comm;
  latency_to_come_ = latency;
  comm->set_source(route.host);
  comm->set_destination(route.host); // starts here
  set_bandwidth(route, bandwidth);
}

void SimGridEngine::set_bandwidth(Route& route, double bandwidth) {
  if (std::exchange(route.bandwidth, bandwidth) != bandwidth)
    route.carrier->set_bandwidth(bandwidth);
}

void SimGridEngine::completed(Work& work) {
  ended_ = std::move(work.activity);
  int const rank_class = work.index / stream_limit;
  int const stream = work.index % stream_limit;
  switch (std::exchange(work.kind, Work::Kind::idle)) {
    case Work::Kind::issue: walk_.issued(rank_class, stream, now()); break;
    case Work::Kind::compute:
      interference_.stop(rank_class, stream);
      walk_.compute_ended(rank_class, stream, now());
      break;
    case Work::Kind::latency:
      ++transfers_[at(work.index)].phase;
      continue_transfer(work.index);
      break;
    case Work::Kind::flow: flow_ended(work); break;
    case Work::Kind::idle: break;
  }
  take_actions();
  settle();
}

Timeline SimGridEngine::run() {
  walk_.begin();
  take_actions();
  settle();
  engine_.run();
  return walk_.finish();
}

void SimGridEngine::take_actions() {
  while (!walk_.actions.empty()) {
    Action const action = walk_.actions.back();
    walk_.actions.pop_back();
    switch (action.kind) {
      case Action::Kind::start_compute: start_compute(action.index, action.stream); break;
      case Action::Kind::start_transfer: start_transfer(action.index); break;
      case Action::Kind::wake: {
        Device& device = devices_[at(action.index)];
        device.work[action.stream].kind = Work::Kind::issue;
        start_exec(device.work[action.stream], device.host[action.stream], action.time - now());
        break;
      }
    }
  }
}

// ------------------------------------------------------------------------------------------------------------ devices

void SimGridEngine::start_compute(int rank_class, int stream) {
  double const alone = std::get<ComputeDemand>(walk_.demand(rank_class, stream).device).alone.value();
  if (alone == 0) {
    walk_.compute_ended(rank_class, stream, now());
    return;
  }
  interference_.start(rank_class, stream, walk_.demand(rank_class, stream), -1);
  Device& device = devices_[at(rank_class)];
  device.work[at(stream)].kind = Work::Kind::compute;
  if (!device.interferes)
    start_exec(device.work[at(stream)], device.host[at(stream)], alone);
}

void SimGridEngine::set_speed(int rank_class, int stream, std::int32_t communicator, double before, double speed) {
  if (communicator >= 0)
    return mark(communicator);
  Device& device = devices_[at(rank_class)];
  if (!device.interferes)
    return;
  if (before > 0)
    return set_bandwidth(device.route[at(stream)], speed * second_scale_);
  double const alone = std::get<ComputeDemand>(walk_.demand(rank_class, stream).device).alone.value();
  start_comm(device.work[at(stream)], device.route[at(stream)], alone * second_scale_, second_scale_,
             speed * second_scale_, 0);
}

void SimGridEngine::mark(std::int32_t communicator) {
  if (!std::exchange(transfers_[at(communicator)].changed, true))
    changed_transfers_.push_back(communicator);
}

// ---------------------------------------------------------------------------------------------------------- transfers

void SimGridEngine::start_transfer(int communicator) {
  Transfer& transfer = transfers_[at(communicator)];
  transfer.demand = &walk_.transfer(communicator);
  transfer.phase = 0;
  transfer.speed = 0;
  for (Member const& member : walk_.members(communicator))
    interference_.start(member.rank_class, member.stream, walk_.demand(member.rank_class, member.stream), communicator);
  continue_transfer(communicator);
}

// Begins the phase that stands next, or ends the transfer.
void SimGridEngine::continue_transfer(int communicator) {
  Transfer& transfer = transfers_[at(communicator)];
  for (; transfer.phase < transfer.demand->phases.size(); ++transfer.phase) {
    Phase const& phase = transfer.demand->phases[transfer.phase];
    if (!phase.flows.empty()) {
      transfer.flows_due = true;
      return mark(communicator);
    }
    if (phase.latency.value() > 0) {
      transfer.work.kind = Work::Kind::latency;
      return start_exec(transfer.work, transfer.host, phase.latency.value());
    }
  }
  for (Member const& member : walk_.members(communicator))
    interference_.stop(member.rank_class, member.stream);
  walk_.transfer_ended(communicator, now());
}

void SimGridEngine::settle_transfer(int communicator) {
  Transfer& transfer = transfers_[at(communicator)];
  transfer.changed = false;
  transfer.speed = 1;
  for (Member const& member : walk_.members(communicator))
    transfer.speed = std::min(transfer.speed, interference_.speed(member.rank_class, member.stream));
  if (std::exchange(transfer.flows_due, false))
    return start_flows(communicator);
  for (FlowRoute* flow : transfer.running)
    set_bandwidth(flow->route, std::min(flow->rate_cap * transfer.speed, flow->most) * byte_scale_);
}

void SimGridEngine::start_flows(int communicator) {
  Transfer& transfer = transfers_[at(communicator)];
  Phase const& phase = transfer.demand->phases[transfer.phase];
  for (Flow const& flow : phase.flows) {
    FlowRoute& route = transfer.routes[transfer.route_of.at(&flow)];
    route.rate_cap = flow.rate_cap.value();
    route.most = std::numeric_limits<double>::infinity();
    for (LinkUse const& use : flow.links)
      route.most = std::min(route.most, 2 * program_.links[at(use.link)].capacity.value() / use.multiplicity);
    route.work.engine = this;
    route.work.kind = Work::Kind::flow;
    route.work.index = communicator;
    transfer.running.push_back(&route);
    start_comm(route.work, route.route, flow.bytes.value() * byte_scale_,
               std::min(route.rate_cap, route.most) * byte_scale_,
               std::min(route.rate_cap * transfer.speed, route.most) * byte_scale_, phase.latency.value());
  }
}

void SimGridEngine::flow_ended(Work& work) {
  Transfer& transfer = transfers_[at(work.index)];
  std::erase_if(transfer.running, [&](FlowRoute const* flow) { return &flow->work == &work; });
  if (transfer.running.empty()) {
    ++transfer.phase;
    continue_transfer(work.index);
  }
}

void SimGridEngine::settle() {
  interference_.settle([&](int rank_class, int stream, std::int32_t communicator, double before, double speed) {
    set_speed(rank_class, stream, communicator, before, speed);
  });
  for (std::int32_t communicator : changed_transfers_)
    settle_transfer(communicator);
  changed_transfers_.clear();
}

} // namespace

Timeline run_simgrid(FoldedProgram const& program, RunOptions options) { return SimGridEngine(program, options).run(); }

} // namespace foreplan

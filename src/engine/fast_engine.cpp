// The fast engine: a heap of events, max-min sharing over the flows that an event touches.
//
// Between two moments rates are constant. At each moment: take the events of this moment, start what the walk says,
// then settle: speeds on devices whose running items changed, bounds of transfers whose members' speeds changed, rates
// of flows that share a full link with a flow that came, went or changed its bound.
#include "engine/engine.hpp"
#include "engine/interference.hpp"
#include "engine/program_walk.hpp"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

namespace foreplan {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

struct Event {
  enum class Kind : std::uint8_t { issued, compute_end, latency_end, flow_end };
  double time = 0;
  std::int32_t index = 0;    // issued, compute_end: class * stream_limit + stream; latency_end: communicator; flow
  std::uint32_t version = 0; // compute_end, flow_end: of the rate it was computed with
  Kind kind = Kind::issued;
  friend bool operator>(Event const& a, Event const& b) { return a.time > b.time; }
};

// Work that goes on at a rate: `left` was what was left at `since`.
struct Progress {
  double left = 0;
  double rate = 0;
  double since = 0;
  std::uint32_t version = 0;

  // At no rate yet.
  void begin(double amount, double now) {
    left = amount;
    rate = 0;
    since = now;
  }

  // Returns the time at which it ends at the new rate; ends computed before are out of date.
  double change_rate(double new_rate, double now) {
    left = std::max(0.0, left - rate * (now - since));
    since = now;
    rate = new_rate;
    ++version;
    return now + left / rate;
  }
};

struct ActiveFlow {
  Progress progress;
  double bound = 0; // rate cap * speed of its transfer, and what each link allows it alone
  double rate = 0;  // scratch of share_links
  Flow const* flow = nullptr;
  std::int32_t communicator = -1;
  std::int32_t visit = 0;
  bool touched = false;
};

struct Transfer {
  TransferDemand const* demand = nullptr;
  std::size_t phase = 0;
  std::vector<std::int32_t> flows; // of the phase, that have not ended
  double speed = 0;
  bool changed = false;
};

struct Link {
  double capacity = 0;
  std::vector<std::pair<std::int32_t, std::int32_t>> flows; // and their multiplicities
  bool limiting = false; // its flows' bounds exceed its capacity; otherwise it holds nobody back
  bool touched = false;
  double left = 0; // scratch of share_links
  std::int64_t weight = 0;
  std::int32_t visit = 0;
};

class FastEngine {
public:
  FastEngine(FoldedProgram const& program, RunOptions options);
  Timeline run();

private:
  void handle(Event const& event);
  void take_actions();
  void start_compute(int rank_class, int stream);
  void start_transfer(int communicator);
  void continue_transfer(int communicator);
  void start_flows(int communicator);
  void end_flow(std::int32_t flow);
  void settle();
  void set_speed(int rank_class, int stream, std::int32_t communicator, double speed);
  void mark(std::int32_t communicator);
  void settle_transfer(int communicator);
  void touch(std::int32_t flow);
  void touch(Link& link, std::int32_t number);
  void share_links();
  void visit_flow(std::int32_t flow);
  void visit_link(std::int32_t link);
  void fill();
  void fix(ActiveFlow& flow, double rate);
  void push(double time, std::int32_t index, std::uint32_t version, Event::Kind kind);

  ProgramWalk walk_;
  double now_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Interference interference_;
  std::vector<Progress> computes_; // by class * stream_limit + stream
  std::vector<Transfer> transfers_;
  std::vector<Link> links_;
  std::vector<ActiveFlow> flows_;
  std::vector<std::int32_t> free_flows_;
  std::vector<std::int32_t> changed_transfers_, touched_flows_, touched_links_;
  // The flows and full links that share_links looks at.
  std::vector<std::int32_t> near_flows_, near_links_, by_bound_;
  std::int32_t visit_ = 0;
};

FastEngine::FastEngine(FoldedProgram const& program, RunOptions options)
    : walk_(program, options), interference_(program.classes.size()), computes_(program.classes.size() * stream_limit),
      transfers_(program.communicators.size()), links_(program.links.size()) {
  for (std::size_t l = 0; l < links_.size(); ++l)
    links_[l].capacity = program.links[l].capacity.value();
}

Timeline FastEngine::run() {
  walk_.begin();
  take_actions();
  settle();
  while (!events_.empty()) {
    now_ = events_.top().time;
    while (!events_.empty() && events_.top().time <= now_) {
      Event const event = events_.top();
      events_.pop();
      handle(event);
      take_actions();
    }
    settle();
  }
  return walk_.finish();
}

void FastEngine::push(double time, std::int32_t index, std::uint32_t version, Event::Kind kind) {
  events_.push({time, index, version, kind});
}

void FastEngine::handle(Event const& event) {
  int const rank_class = event.index / stream_limit;
  int const stream = event.index % stream_limit;
  switch (event.kind) {
    case Event::Kind::issued: walk_.issued(rank_class, stream, now_); break;
    case Event::Kind::compute_end:
      if (event.version != computes_[at(event.index)].version)
        break;
      interference_.stop(rank_class, stream);
      walk_.compute_ended(rank_class, stream, now_);
      break;
    case Event::Kind::latency_end: start_flows(event.index); break;
    case Event::Kind::flow_end:
      if (event.version == flows_[at(event.index)].progress.version)
        end_flow(event.index);
      break;
  }
}

void FastEngine::take_actions() {
  while (!walk_.actions.empty()) {
    Action const action = walk_.actions.back();
    walk_.actions.pop_back();
    switch (action.kind) {
      case Action::Kind::start_compute: start_compute(action.index, action.stream); break;
      case Action::Kind::start_transfer: start_transfer(action.index); break;
      case Action::Kind::wake:
        push(action.time, action.index * stream_limit + action.stream, 0, Event::Kind::issued);
        break;
    }
  }
}

// ------------------------------------------------------------------------------------------------------------ devices

void FastEngine::start_compute(int rank_class, int stream) {
  double const alone = std::get<ComputeDemand>(walk_.demand(rank_class, stream).device).alone.value();
  if (alone == 0) {
    walk_.compute_ended(rank_class, stream, now_);
    return;
  }
  computes_[at(rank_class * stream_limit + stream)].begin(alone, now_);
  interference_.start(rank_class, stream, walk_.demand(rank_class, stream), -1);
}

void FastEngine::set_speed(int rank_class, int stream, std::int32_t communicator, double speed) {
  if (communicator >= 0)
    return mark(communicator);
  std::int32_t const number = rank_class * stream_limit + stream;
  Progress& progress = computes_[at(number)];
  double const end = progress.change_rate(speed, now_);
  push(end, number, progress.version, Event::Kind::compute_end);
}

void FastEngine::mark(std::int32_t communicator) {
  if (!std::exchange(transfers_[at(communicator)].changed, true))
    changed_transfers_.push_back(communicator);
}

// ---------------------------------------------------------------------------------------------------------- transfers

void FastEngine::start_transfer(int communicator) {
  Transfer& transfer = transfers_[at(communicator)];
  transfer.demand = &walk_.transfer(communicator);
  transfer.phase = 0;
  transfer.speed = 0;
  for (Member const& member : walk_.members(communicator))
    interference_.start(member.rank_class, member.stream, walk_.demand(member.rank_class, member.stream), communicator);
  continue_transfer(communicator);
}

// Begins the phase that stands next, or ends the transfer.
void FastEngine::continue_transfer(int communicator) {
  Transfer& transfer = transfers_[at(communicator)];
  for (; transfer.phase < transfer.demand->phases.size(); ++transfer.phase) {
    Phase const& phase = transfer.demand->phases[transfer.phase];
    if (phase.latency.value() > 0)
      return push(now_ + phase.latency.value(), communicator, 0, Event::Kind::latency_end);
    if (!phase.flows.empty())
      return start_flows(communicator);
  }
  for (Member const& member : walk_.members(communicator))
    interference_.stop(member.rank_class, member.stream);
  walk_.transfer_ended(communicator, now_);
}

void FastEngine::start_flows(int communicator) {
  Transfer& transfer = transfers_[at(communicator)];
  Phase const& phase = transfer.demand->phases[transfer.phase];
  if (phase.flows.empty()) {
    ++transfer.phase;
    return continue_transfer(communicator);
  }
  for (Flow const& flow : phase.flows) {
    std::int32_t number = static_cast<std::int32_t>(flows_.size());
    if (free_flows_.empty()) {
      flows_.emplace_back();
    } else {
      number = free_flows_.back();
      free_flows_.pop_back();
    }
    ActiveFlow& active = flows_[at(number)];
    active.progress.begin(flow.bytes.value(), now_);
    active.bound = 0;
    active.flow = &flow;
    active.communicator = communicator;
    for (LinkUse const& use : flow.links)
      links_[at(use.link)].flows.emplace_back(number, use.multiplicity);
    transfer.flows.push_back(number);
  }
  transfer.speed = 0; // settle_transfer gives the flows their bounds
  mark(communicator);
}

void FastEngine::end_flow(std::int32_t number) {
  ActiveFlow& active = flows_[at(number)];
  for (LinkUse const& use : active.flow->links) {
    Link& link = links_[at(use.link)];
    auto const place = std::find_if(link.flows.begin(), link.flows.end(), [&](auto f) { return f.first == number; });
    *place = link.flows.back();
    link.flows.pop_back();
    if (link.limiting)
      touch(link, use.link);
  }
  ++active.progress.version;
  active.flow = nullptr;
  free_flows_.push_back(number);
  Transfer& transfer = transfers_[at(active.communicator)];
  std::erase(transfer.flows, number);
  if (transfer.flows.empty()) {
    ++transfer.phase;
    continue_transfer(active.communicator);
  }
}

void FastEngine::settle_transfer(int communicator) {
  Transfer& transfer = transfers_[at(communicator)];
  transfer.changed = false;
  if (transfer.flows.empty())
    return;
  double speed = 1;
  for (Member const& member : walk_.members(communicator))
    speed = std::min(speed, interference_.speed(member.rank_class, member.stream));
  if (speed == transfer.speed)
    return;
  transfer.speed = speed;
  for (std::int32_t number : transfer.flows) {
    ActiveFlow& active = flows_[at(number)];
    active.bound = active.flow->rate_cap.value() * speed;
    for (LinkUse const& use : active.flow->links)
      active.bound = std::min(active.bound, links_[at(use.link)].capacity / use.multiplicity);
    touch(number);
  }
}

void FastEngine::settle() {
  interference_.settle([&](int rank_class, int stream, std::int32_t communicator, double, double speed) {
    set_speed(rank_class, stream, communicator, speed);
  });
  for (std::int32_t communicator : changed_transfers_)
    settle_transfer(communicator);
  changed_transfers_.clear();
  if (!touched_flows_.empty() || !touched_links_.empty())
    share_links();
}

// -------------------------------------------------------------------------------------------------------------- links

void FastEngine::touch(std::int32_t number) {
  ActiveFlow& active = flows_[at(number)];
  if (std::exchange(active.touched, true))
    return;
  touched_flows_.push_back(number);
  for (LinkUse const& use : active.flow->links)
    touch(links_[at(use.link)], use.link);
}

void FastEngine::touch(Link& link, std::int32_t number) {
  if (!std::exchange(link.touched, true))
    touched_links_.push_back(number);
}

void FastEngine::visit_flow(std::int32_t number) {
  ActiveFlow& active = flows_[at(number)];
  if (std::exchange(active.visit, visit_) != visit_)
    near_flows_.push_back(number);
}

void FastEngine::visit_link(std::int32_t number) {
  Link& link = links_[at(number)];
  if (std::exchange(link.visit, visit_) != visit_)
    near_links_.push_back(number);
}

// New rates for the touched flows and for those that they reach through limiting links. A link whose flows' bounds fit
// within its capacity couples nobody: in most steps most flows just get their bound.
void FastEngine::share_links() {
  ++visit_;
  near_flows_.clear();
  near_links_.clear();
  for (std::int32_t number : touched_links_) {
    Link& link = links_[at(number)];
    link.touched = false;
    double wanted = 0;
    for (auto [flow, multiplicity] : link.flows)
      wanted += multiplicity * flows_[at(flow)].bound;
    bool const limited = std::exchange(link.limiting, wanted > link.capacity);
    if (link.limiting)
      visit_link(number);
    else if (limited) // its flows are free of it now
      for (auto [flow, multiplicity] : link.flows)
        visit_flow(flow);
  }
  touched_links_.clear();
  for (std::int32_t number : touched_flows_) {
    flows_[at(number)].touched = false;
    visit_flow(number);
  }
  touched_flows_.clear();
  for (std::size_t f = 0, l = 0; f < near_flows_.size() || l < near_links_.size();) {
    for (; l < near_links_.size(); ++l)
      for (auto [flow, multiplicity] : links_[at(near_links_[l])].flows)
        visit_flow(flow);
    for (; f < near_flows_.size(); ++f)
      for (LinkUse const& use : flows_[at(near_flows_[f])].flow->links)
        if (links_[at(use.link)].limiting)
          visit_link(use.link);
  }
  fill();
  for (std::int32_t number : near_flows_) {
    ActiveFlow& active = flows_[at(number)];
    if (active.rate == active.progress.rate)
      continue;
    double const end = active.progress.change_rate(active.rate, now_);
    push(end, number, active.progress.version, Event::Kind::flow_end);
  }
}

// Max-min fair rates of near_flows_ under near_links_: raise all rates together; fix a flow that meets its bound, and
// the flows of a link that is full.
void FastEngine::fill() {
  if (near_links_.empty()) {
    for (std::int32_t number : near_flows_)
      flows_[at(number)].rate = flows_[at(number)].bound;
    return;
  }
  constexpr double not_fixed = -1;
  by_bound_ = near_flows_;
  std::sort(by_bound_.begin(), by_bound_.end(),
            [&](std::int32_t a, std::int32_t b) { return flows_[at(a)].bound < flows_[at(b)].bound; });
  for (std::int32_t number : near_flows_)
    flows_[at(number)].rate = not_fixed;
  for (std::int32_t number : near_links_) {
    Link& link = links_[at(number)];
    link.left = link.capacity;
    link.weight = 0;
    for (auto [flow, multiplicity] : link.flows)
      link.weight += multiplicity;
  }
  double level = 0; // rounding must not lower it
  for (auto next = by_bound_.begin(); next != by_bound_.end();) {
    ActiveFlow& slowest = flows_[at(*next)];
    if (slowest.rate != not_fixed) {
      ++next;
      continue;
    }
    double share = std::numeric_limits<double>::infinity();
    Link const* tightest = nullptr;
    for (std::int32_t number : near_links_) {
      Link const& link = links_[at(number)];
      if (link.weight > 0 && link.left < share * static_cast<double>(link.weight)) {
        share = link.left / static_cast<double>(link.weight);
        tightest = &link;
      }
    }
    if (slowest.bound <= share) {
      level = std::max(level, slowest.bound);
      fix(slowest, slowest.bound);
      continue;
    }
    level = std::max(level, share);
    for (auto [flow, multiplicity] : tightest->flows)
      if (flows_[at(flow)].rate == not_fixed)
        fix(flows_[at(flow)], level);
  }
}

void FastEngine::fix(ActiveFlow& flow, double rate) {
  flow.rate = rate;
  for (LinkUse const& use : flow.flow->links) {
    Link& link = links_[at(use.link)];
    link.left -= use.multiplicity * rate;
    link.weight -= use.multiplicity;
  }
}

} // namespace

Timeline run_fast(FoldedProgram const& program, RunOptions options) { return FastEngine(program, options).run(); }

} // namespace foreplan

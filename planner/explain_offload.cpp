#include "planner/explain_offload.hpp"

#include "plan/plan_checker.hpp"
#include "program/compile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace foreplan {

double efficiency(double intensity, BytesPerSecond bandwidth, FlopsPerSecond peak) {
  double const fed = intensity * bandwidth.value();
  return fed / (fed + peak.value());
}

double parameter_intensity(double sequence, double batch) { return 8 * sequence * batch / (2 * 4); }
double optimizer_intensity(double sequence, double batch) { return 8 * sequence * batch / (2 * 16); }

// Of a token: 8 x 12 h^2 flops a block; 2 bytes of h elements, down and up.
double checkpoint_intensity(double hidden, double blocks_between_checkpoints) {
  return 8 * 12 * hidden * hidden * blocks_between_checkpoints / (2 * 2 * hidden);
}

namespace {

// The share of a step that an exposed update may take: "90 % efficiency" (section 4.2).
constexpr double exposed_share = 0.1;

enum Path : std::size_t { down, up, to_disk, from_disk, paths };

// Bytes that a step copies, by what they are and where they go.
struct Traffic {
  std::array<std::array<double, paths>, category_count> bytes{};
  double operator()(Category category, Path path) const { return bytes[static_cast<std::size_t>(category)][path]; }
};

Traffic traffic_of(StageProgram const& stage) {
  Traffic traffic;
  for (Element const& element : stage.elements) {
    Op const* op = std::get_if<Op>(&element);
    if (op == nullptr || op->kind != OpKind::copy)
      continue;
    bool const arrives = op->stream == Stream::copy_up || op->stream == Stream::disk_write;
    Tensor const& tensor = stage[arrives ? op->writes[0] : op->reads[0]]; // not the host's buffer
    Path const path = op->stream == Stream::copy_down    ? down
                      : op->stream == Stream::copy_up    ? up
                      : op->stream == Stream::disk_write ? to_disk
                                                         : from_disk;
    traffic.bytes[static_cast<std::size_t>(tensor.category)][path] += static_cast<double>(tensor.elements() *
                                                                                          size_of(tensor.dtype));
  }
  return traffic;
}

// Everything that may live on drives does, checkpoints on the host.
Plan all_outside(Model const& model, Plan plan) {
  plan.offload.optimizer = plan.offload.parameters = MemoryTier::disk;
  plan.offload.ratio = 1;
  plan.offload.tile = 0;
  plan.offload.checkpoints = plan.recompute == Recompute::full;
  if (!check(model, plan).empty())
    plan.offload.parameters = MemoryTier::device;
  return plan;
}

// What a device gets when all devices of a node copy at once.
struct Rates {
  BytesPerSecond host, drive_read, drive_write;
};
Rates rates_of(HardwareProfile const& profile) {
  if (!profile.node.host)
    return {};
  Host const& host = *profile.node.host;
  double const devices = profile.node.devices;
  BytesPerSecond const shared = host.shared_link > BytesPerSecond(0) ? host.shared_link / host.devices_per_link
                                                                     : host.link;
  return {std::min({host.link, shared, host.memory_bandwidth / devices}), host.drive_read * host.drives / devices,
          host.drive_write * host.drives / devices};
}

struct Passes {
  Seconds forward, backward; // of all micro-batches, computation alone
};

// A forward is one of the three products of a weight, of four with full recompute.
Passes passes_of(Plan const& plan, Report const& report) {
  Seconds const all = report.breakdown.compute_total();
  double const share = plan.recompute == Recompute::full && plan.recompute_layers < 0 ? 1.0 / 4 : 1.0 / 3;
  return {all * share, all * (1 - share)};
}

Seconds time_of(Bytes bytes, BytesPerSecond rate) { return rate > BytesPerSecond(0) ? bytes / rate : Seconds(0); }

class Answer {
public:
  Answer(Report const& report, Rates const& rates)
      : flops_(report.executed_flops.value() / report.devices), rates_(rates) {}

  // Of what moves both ways under passes: the direction and the pass that need most.
  void add(std::string what, Bytes in_forward, Bytes in_backward, Bytes both, std::string direction,
           Passes const& passes, Traffic const& traffic, Category category) {
    bool const forward_decides = in_forward / passes.forward > in_backward / passes.backward;
    Bytes const bytes = forward_decides ? in_forward : in_backward;
    Seconds const time = forward_decides ? passes.forward : passes.backward;
    if (bytes == Bytes(0))
      return;
    bool const reads = direction == "up";
    bool const on_drives = traffic(category, reads ? from_disk : to_disk) > 0;
    needs_.push_back({std::move(what), bytes, std::move(direction), flops_ / both.value(),
                      forward_decides ? "forwards" : "backwards", time, bytes / time, rates_.host,
                      !on_drives ? BytesPerSecond(0)
                      : reads    ? rates_.drive_read
                                 : rates_.drive_write,
                      std::max(Seconds(0), time_of(bytes, rates_.host) - time)});
  }

  // Nothing runs beside an update: it hides under nothing, but may be short.
  void add_states(Bytes read, Bytes written, Seconds step) {
    BytesPerSecond const drives = std::min(rates_.drive_read, rates_.drive_write);
    needs_.push_back({"optimizer states", std::max(read, written), read >= written ? "from drives" : "to drives",
                      flops_ / (read + written).value(),
                      fmt::format("nothing: {:.0f} % of the passes", 100 * exposed_share), step * exposed_share,
                      std::max(read, written) / (step * exposed_share), BytesPerSecond(0), drives,
                      std::max(time_of(read, rates_.drive_read), time_of(written, rates_.drive_write))});
  }

  std::vector<OffloadNeed> take() && { return std::move(needs_); }

private:
  double flops_; // of a rank
  Rates rates_;
  std::vector<OffloadNeed> needs_;
};

} // namespace

std::vector<OffloadNeed> explain_offload(Model const& model, Plan const& plan, Cluster const& cluster) {
  Plan inside = plan;
  inside.offload = {};
  Report const report = simulate(model, inside, cluster);
  Passes const passes = passes_of(plan, report);
  Program const program = compile(model, all_outside(model, plan));
  Traffic most;
  for (StageProgram const& stage : program.stages) {
    Traffic const traffic = traffic_of(stage);
    for (std::size_t c = 0; c < category_count; ++c)
      for (std::size_t p = 0; p < paths; ++p)
        most.bytes[c][p] = std::max(most.bytes[c][p], traffic.bytes[c][p]);
  }
  auto bytes = [&](Category category, Path path) { return Bytes(most(category, path)); };
  Answer answer(report, rates_of(cluster.profile));
  // Shards come up once for a forward and once for a backward; whole parameters once, behind the update.
  Bytes const parameters = bytes(Category::parameters, up);
  if (plan.zero_stage == 3)
    answer.add("parameters", parameters / 2, parameters / 2, parameters, "up", passes, most, Category::parameters);
  Bytes const gradients_down = bytes(Category::gradients, down), gradients_up = bytes(Category::gradients, up);
  answer.add("gradients", Bytes(0), gradients_down, gradients_down + gradients_up, "down", passes, most,
             Category::gradients);
  answer.add_states(bytes(Category::optimizer, from_disk), bytes(Category::optimizer, to_disk),
                    passes.forward + passes.backward);
  Bytes const checkpoints = bytes(Category::activations, down);
  answer.add("checkpoints", checkpoints, checkpoints, checkpoints * 2, "down", passes, most, Category::activations);
  return std::move(answer).take();
}

} // namespace foreplan

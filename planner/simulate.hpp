// One plan, from compilation to report.
#pragma once

#include "cluster/cluster.hpp"
#include "engine/fold.hpp"
#include "report/report.hpp"
#include "timeline/timeline.hpp"

#include <memory>
#include <ostream>

namespace foreplan {

enum class Engine { fast, simgrid };

struct SimulateOptions {
  Engine engine = Engine::fast;
  bool segments = true; // runs of layers as one item; without: kernel by kernel
  bool unfold = false;  // every rank, not one of each class
  bool interference = true;
  double headroom = 0.14; // share of the usable memory that must stay free, or the plan is borderline
};

// What a run of a plan leaves: for the report, the trace and whatever else reads a timeline.
struct Simulation {
  std::unique_ptr<Program const> program; // the folding points into it
  Folding folding;
  Timeline timeline;
};
Simulation run_plan(Model const& model, Plan const& plan, Cluster const& cluster, SimulateOptions options = {});
Report report_of(Simulation const& simulation, Cluster const& cluster, SimulateOptions options = {});

// Of the stage's rank classes the one that computes longest: the one that others wait for.
std::size_t slowest_class(Simulation const& simulation, Stage stage);

// The trace of one rank a stage (of its slowest class), as PyTorch's profiler writes it. `stage` -1: of all in one file.
void write_trace(std::ostream& out, Simulation const& simulation, Cluster const& cluster, int stage = -1);

// The plan must be legal (plan_checker.hpp) and its ranks must not be more than the cluster's devices.
Report simulate(Model const& model, Plan const& plan, Cluster const& cluster, SimulateOptions options = {});

// Memory alone: what the fullest stage's ranks need at their peak. Does not depend on the number of micro-batches beyond
// those in flight, so it is found with few.
Bytes peak_memory(Model const& model, Plan const& plan);

// What a rank needs of each memory, on the stage that needs most of it.
struct MemoryNeeds {
  Bytes device, host, disk;
};
MemoryNeeds memory_needs(Model const& model, Plan const& plan);
// A device's share of the node's memory and drives; nothing where the profile does not say.
MemoryNeeds memory_shares(HardwareProfile const& profile);

Bytes usable_memory(HardwareProfile const& profile);
Fit fit_of(Bytes peak, Bytes usable, double headroom);
Fit fit_of(MemoryNeeds const& needs, HardwareProfile const& profile, double headroom);

// The step time with the steady state extrapolated: it is affine in the number of micro-batches from about 2 pp on. Run
// for 2 pp, 3 pp and 4 pp micro-batches; if the third lies on the line of the other two (1e-6 of the step), the line gives
// the time for any number, else the whole step is run. Plans with fewer micro-batches are run as they are.
Seconds step_time(Model const& model, Plan const& plan, Cluster const& cluster, SimulateOptions const& options = {});

} // namespace foreplan

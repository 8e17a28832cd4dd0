#include "planner/simulate.hpp"

#include "engine/engine.hpp"
#include "engine/explain_timeline.hpp"
#include "engine/fold.hpp"
#include "planner/allocator.hpp"
#include "planner/risk.hpp"
#include "planner/step_band.hpp"
#include "program/compile.hpp"
#include "report/executed_flops.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace foreplan {

namespace {

std::string layers_text(Model const& model, StageProgram const& stage) {
  std::string text;
  auto add = [&](std::string part) { text += (text.empty() ? "" : ", ") + std::move(part); };
  if (stage.chunks.front().first == 0)
    add("embedding");
  if (stage.chunks.size() == 1) {
    int const first = std::max(stage.chunks[0].first, 1), last = std::min(stage.chunks[0].last - 1, model.layers);
    if (first <= last)
      add(fmt::format("blocks {}-{}", first, last));
  } else {
    int blocks = 0;
    for (LayerRange range : stage.chunks)
      blocks += std::min(range.last, model.layers + 1) - std::max(range.first, 1);
    add(fmt::format("{} blocks in {} chunks", blocks, stage.chunks.size()));
  }
  if (stage.chunks.back().last == model.layers + 2)
    add("head");
  return text;
}

std::string moment_text(StageProgram const& stage, MemoryPeak const& peak) {
  Element const& element = stage.elements[static_cast<std::size_t>(peak.element)];
  Slot const* slot = std::get_if<Slot>(&element);
  if (slot == nullptr)
    return peak.op;
  return fmt::format("{} of micro-batch {}, layer {}: {}", letter(slot->kind), slot->micro_batch.value(), peak.layer,
                     peak.op);
}

void add(Breakdown& sum, Breakdown const& part, double weight) {
  for (std::size_t i = 0; i < sum.compute.size(); ++i)
    sum.compute[i] += part.compute[i] * weight;
  sum.exposed_tp += part.exposed_tp * weight;
  sum.exposed_cp += part.exposed_cp * weight;
  sum.exposed_dp += part.exposed_dp * weight;
  sum.exposed_pp += part.exposed_pp * weight;
  sum.exposed_offload += part.exposed_offload * weight;
  sum.host += part.host * weight;
  sum.bubble += part.bubble * weight;
  sum.hidden_tp += part.hidden_tp * weight;
  sum.hidden_cp += part.hidden_cp * weight;
  sum.hidden_dp += part.hidden_dp * weight;
  sum.hidden_pp += part.hidden_pp * weight;
  sum.hidden_offload += part.hidden_offload * weight;
  sum.communicating += part.communicating * weight;
  sum.overlapped += part.overlapped * weight;
}

Bytes elsewhere(StageMemory const& memory, MemoryTier tier) {
  return Bytes(static_cast<double>(memory.elsewhere[static_cast<std::size_t>(tier)]));
}

void report_memory(Report& report, Program const& program) {
  for (StageProgram const& stage : program.stages) {
    StageMemory const memory = memory_of(program, stage);
    report.stages.push_back({stage.stage,
                             layers_text(program.model, stage),
                             {},
                             memory.persistent,
                             memory.peak.use,
                             moment_text(stage, memory.peak)});
    report.peak_memory = std::max(report.peak_memory, Bytes(static_cast<double>(memory.peak.use.total())));
    report.needed_memory = std::max(report.needed_memory, needed_memory(program, memory));
    report.host_memory = std::max(report.host_memory, elsewhere(memory, MemoryTier::host));
    report.disk_memory = std::max(report.disk_memory, elsewhere(memory, MemoryTier::disk));
  }
}

void report_breakdowns(Report& report, Folding const& folding, Timeline const& timeline) {
  for (std::size_t c = 0; c < folding.classes.size(); ++c) {
    FoldedClass const& folded = folding.classes[c];
    Breakdown breakdown = breakdown_of(folding, timeline, c);
    breakdown.bubble -= timeline.step - report.step; // without the barrier the next step fills it
    add(report.breakdown, breakdown, static_cast<double>(folded.ranks) / report.devices);
    Breakdown& of_stage = report.stages[folded.stage.index()].breakdown;
    if (breakdown.compute_total() > of_stage.compute_total())
      of_stage = breakdown;
  }
}

Timeline run(FoldedProgram const& program, Engine engine, RunOptions options = {}) {
  return engine == Engine::simgrid ? run_simgrid(program, options) : run_fast(program, options);
}

Plan with_micro_batches(Plan plan, std::int64_t m) {
  plan.global_batch = m * plan.micro_batch * plan.dp;
  return plan;
}

// With post-validation steps follow each other without a barrier: a stage begins the next when it has ended this one, so
// that a step takes as long as the busiest stage from its first pass to its last, and what follows the last pass of all.
Seconds step_of(Program const& program, Folding const& folding, Timeline const& timeline) {
  if (!program.plan.execution.post_validation || !splits_backward(program.plan.schedule))
    return timeline.step;
  double longest = 0, last_of_all = 0;
  for (std::size_t c = 0; c < folding.classes.size(); ++c) {
    FoldedClass const& folded = folding.classes[c];
    std::vector<Element> const& elements = program.stages[folded.stage.index()].elements;
    double first = INFINITY, last = 0;
    for (TimelineEntry const& ran : timeline.classes[c]) {
      auto const element = static_cast<std::size_t>(folded.uses[static_cast<std::size_t>(ran.use)].element);
      if (!std::holds_alternative<Slot>(elements[element]))
        continue;
      first = std::min(first, ran.start);
      last = std::max(last, ran.end);
    }
    longest = std::max(longest, last - first);
    last_of_all = std::max(last_of_all, last);
  }
  return Seconds(longest - last_of_all) + timeline.step;
}

// Interleaved, micro-batches come in whole groups.
std::int64_t micro_batch_group(Plan const& plan) { return std::max(plan.pp, plan.micro_batch_group); }

// Micro-batches that fill every stage's pipeline to its peak: those in flight and one more; with v chunks in whole groups
// of g, of which less than 2 g are in flight (2 (pp - 1) + (v - 1) g + 1 chunks). Where the backward is split at most
// 2 pp - 1 are in flight; one more pp lets the pipeline come into step.
std::int64_t enough_micro_batches(Plan const& plan) {
  if (plan.schedule == Schedule::gpipe)
    return plan.micro_batches(); // all are in flight
  std::int64_t const enough = splits_backward(plan.schedule) ? std::int64_t{3} * plan.pp
                              : plan.chunks > 1              ? 2 * micro_batch_group(plan)
                                                             : plan.pp + 1;
  return std::min(plan.micro_batches(), enough);
}

// The fullest stage is the first (embedding, most micro-batches in flight), the second (most blocks after it) or the last
// (head and logits): from the second on, neither blocks nor micro-batches in flight grow. With a layout, or where all
// stages have as many in flight, it may be any.
std::vector<int> stages_that_may_be_fullest(Plan const& plan) {
  std::vector<int> stages(static_cast<std::size_t>(plan.pp));
  std::iota(stages.begin(), stages.end(), 0);
  if (plan.pp > 3 && plan.layout.empty() && !splits_backward(plan.schedule))
    stages = {0, 1, plan.pp - 1};
  return stages;
}

} // namespace

Bytes usable_memory(HardwareProfile const& profile) { return profile.chip.memory - profile.reserved; }

Fit fit_of(Bytes peak, Bytes usable, double headroom) {
  if (peak > usable)
    return Fit::too_large;
  return peak > usable * (1 - headroom) ? Fit::borderline : Fit::fits;
}

MemoryNeeds memory_shares(HardwareProfile const& profile) {
  if (!profile.node.host)
    return {};
  Host const& host = *profile.node.host;
  double const devices = profile.node.devices;
  return {usable_memory(profile), host.memory / devices, host.drive_capacity * host.drives / devices};
}

namespace {

// The host's memory, or its drives.
bool is_short_elsewhere(MemoryNeeds const& needs, HardwareProfile const& profile) {
  MemoryNeeds const shares = memory_shares(profile);
  auto exceeds = [](Bytes need, Bytes share) { return share > Bytes(0) && need > share; };
  return exceeds(needs.host, shares.host) || exceeds(needs.disk, shares.disk);
}

} // namespace

Fit fit_of(MemoryNeeds const& needs, HardwareProfile const& profile, double headroom) {
  if (is_short_elsewhere(needs, profile))
    return Fit::too_large;
  return fit_of(needs.device, usable_memory(profile), headroom);
}

Simulation run_plan(Model const& model, Plan const& plan, Cluster const& cluster, SimulateOptions options) {
  Simulation simulation;
  simulation.program = std::make_unique<Program const>(compile(model, plan));
  simulation.folding = fold(
      *simulation.program, cluster,
      {.unfold = options.unfold, .segments = options.segments, .interference = options.interference});
  simulation.timeline = run(simulation.folding.program, options.engine);
  return simulation;
}

Report report_of(Simulation const& simulation, Cluster const& cluster, SimulateOptions options) {
  Program const& program = *simulation.program;
  Model const& model = program.model;
  Plan const& plan = program.plan;
  Report report;
  report.model = model.name;
  report.hardware = cluster.profile.chip.name;
  report.devices = plan.world_size();
  report.plan = plan;
  report.engine = fmt::format("{}, {}{}", options.engine == Engine::simgrid ? "SimGrid" : "fast engine",
                              options.segments ? "on segments" : "kernel by kernel",
                              options.unfold ? ", unfolded" : "");
  report.items = simulation.timeline.items;
  report.step = step_of(program, simulation.folding, simulation.timeline);
  report.tokens_per_second = static_cast<double>(plan.global_batch * plan.sequence_length) / report.step.value();
  report.flops_per_token = training_flops_per_token(model, plan.sequence_length);
  report.executed_flops = executed_flops(program);
  report.peak = cluster.profile.chip.bf16_peak;
  double const peak_of_all = report.devices * report.peak.value();
  report.mfu = report.tokens_per_second * report.flops_per_token.value() / peak_of_all;
  report.hfu = report.executed_flops.value() / report.step.value() / peak_of_all;
  report.usable_memory = usable_memory(cluster.profile);
  report.reserved_memory = cluster.profile.reserved;
  report.headroom = options.headroom;
  report_memory(report, program);
  report_breakdowns(report, simulation.folding, simulation.timeline);
  report.critical_path = summarize(critical_path_of(program, simulation.folding, simulation.timeline), plan.pp);
  StepBand const band = step_band(simulation.folding, report.critical_path);
  report.band = band.relative;
  report.band_known = band.known;
  report.host_share = memory_shares(cluster.profile).host;
  report.disk_share = memory_shares(cluster.profile).disk;
  MemoryNeeds const needs{report.peak_memory, report.host_memory, report.disk_memory};
  report.fit = fit_of(needs, cluster.profile, report.headroom);
  report.fit_probability = is_short_elsewhere(needs, cluster.profile)
                               ? 0
                               : probability_of_fit(report.needed_memory, report.usable_memory);
  report.risk = risk_text(plan, cluster, report.needed_memory, report.usable_memory);
  return report;
}

Report simulate(Model const& model, Plan const& plan, Cluster const& cluster, SimulateOptions options) {
  return report_of(run_plan(model, plan, cluster, options), cluster, options);
}

std::size_t slowest_class(Simulation const& simulation, Stage stage) {
  std::vector<FoldedClass> const& classes = simulation.folding.classes;
  std::size_t slowest = classes.size();
  Seconds longest(-1);
  for (std::size_t c = 0; c < classes.size(); ++c) {
    if (classes[c].stage != stage)
      continue;
    Seconds const busy = breakdown_of(simulation.folding, simulation.timeline, c).compute_total();
    if (busy > longest) {
      longest = busy;
      slowest = c;
    }
  }
  return slowest;
}

void write_trace(std::ostream& out, Simulation const& simulation, Cluster const& cluster, int stage) {
  std::vector<TraceRank> ranks;
  for (int s = 0; s < simulation.program->plan.pp; ++s)
    if (stage < 0 || s == stage)
      ranks.push_back(
          trace_of(*simulation.program, simulation.folding, simulation.timeline, slowest_class(simulation, Stage(s))));
  write_chrome_trace(
      out, {cluster.profile.chip.name, simulation.program->plan.world_size(), simulation.timeline.step.value()}, ranks);
}

namespace {

std::vector<StageMemory> stage_memories(Model const& model, Plan const& plan) {
  Plan const filled = with_micro_batches(plan, enough_micro_batches(plan));
  Program const program = compile_stages(model, filled, stages_that_may_be_fullest(plan));
  std::vector<StageMemory> memories;
  for (StageProgram const& stage : program.stages)
    memories.push_back(memory_of(program, stage));
  return memories;
}

} // namespace

std::vector<StagePeak> stage_peaks(Model const& model, Plan const& plan) {
  Plan const filled = with_micro_batches(plan, enough_micro_batches(plan));
  Program const program = compile_stages(model, filled, stages_that_may_be_fullest(plan));
  std::vector<StagePeak> peaks;
  for (StageProgram const& stage : program.stages) {
    StageMemory const memory = memory_of(program, stage);
    Bytes const needed = needed_memory(program, memory);
    peaks.push_back({memory.peak, needed, needed + waiting(program, stage)});
  }
  return peaks;
}

MemoryNeeds memory_needs(Model const& model, Plan const& plan) {
  MemoryNeeds needs;
  for (StageMemory const& memory : stage_memories(model, plan)) {
    needs.device = std::max(needs.device, Bytes(static_cast<double>(memory.peak.use.total())));
    needs.host = std::max(needs.host, elsewhere(memory, MemoryTier::host));
    needs.disk = std::max(needs.disk, elsewhere(memory, MemoryTier::disk));
  }
  return needs;
}

Bytes peak_memory(Model const& model, Plan const& plan) { return memory_needs(model, plan).device; }

Seconds step_time(Model const& model, Plan const& plan, Cluster const& cluster, SimulateOptions const& options) {
  auto time_with = [&](std::int64_t m) {
    Program const program = compile(model, with_micro_batches(plan, m));
    Folding const folding = fold(
        program, cluster,
        {.unfold = options.unfold, .segments = options.segments, .interference = options.interference});
    bool const keep_entries = plan.execution.post_validation;
    return step_of(program, folding, run(folding.program, options.engine, {.keep_entries = keep_entries}));
  };
  std::int64_t const m = plan.micro_batches(), few = 2 * micro_batch_group(plan) * plan.chunks, many = 2 * few;
  if (m > 2 * many) {
    Seconds const first = time_with(few), second = time_with(many), between = time_with((few + many) / 2);
    if (std::abs((between - (first + second) / 2).value()) <= 1e-6 * second.value())
      return first + (second - first) * (static_cast<double>(m - few) / static_cast<double>(many - few));
  }
  return time_with(m);
}

} // namespace foreplan

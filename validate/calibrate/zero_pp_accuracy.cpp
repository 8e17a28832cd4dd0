#include "validate/calibrate/zero_pp_accuracy.hpp"

#include "cluster/read_profile.hpp"
#include "engine/explain_timeline.hpp"
#include "model/read_model.hpp"
#include "plan/framework.hpp"
#include "planner/simulate.hpp"
#include "report/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace foreplan {

namespace {

// `network`: bytes a second of a node.
Cluster dgx_2(int gpus, double network) {
  HardwareProfile profile = read_profile(FOREPLAN_HARDWARE "/dgx-2.json");
  profile.node.nic = BytesPerSecond(network / profile.node.nics);
  return {profile, gpus / profile.node.devices, {}};
}

// Seconds of a step's forward, backward (to the last reduction's end) and optimizer.
using Phases = std::array<double, 3>;
constexpr std::array<char const*, 3> phase_names{"forward", "backward", "optimizer"};

// DeepSpeed waits for the device between them; here one that begins has waited for the one before.
Phases phases_of(Model const& model, Plan const& plan, Cluster const& cluster) {
  Simulation const simulation = run_plan(model, plan, cluster, {.segments = false});
  TraceRank const trace = trace_of(*simulation.program, simulation.folding, simulation.timeline,
                                   slowest_class(simulation, Stage(0)));
  double forward = 0, backward = 0;
  for (TraceKernel const& kernel : trace.kernels) {
    if (kernel.where.starts_with("forward"))
      forward = std::max(forward, kernel.end);
    if (kernel.where.starts_with("backward") || kernel.op.starts_with("accumulate bucket"))
      backward = std::max(backward, kernel.end);
  }
  return {forward, backward - forward, simulation.timeline.step.value() - backward};
}

Model gpt_18b() { return read_model(FOREPLAN_HARDWARE "/../models/gpt-18b.json"); }

// 64 V100 in 4 DGX-2, 512 tokens each; iteration 40.
constexpr int gpus = 64;
constexpr std::int64_t tokens = 512;
struct Measured {
  char const* name;
  Phases seconds;
  double peak; // GB: MaxMemAllocated
};
constexpr std::array<Measured, 2> measured{
    {{"ZeRO-3", {3.35622, 6.45861, 0.13950}, 8.09}, {"ZeRO++", {1.79463, 1.74199, 0.14242}, 10.02}}};

std::array<Plan, 2> plans() {
  Plan const plan = deepspeed_zero_3(tokens, gpus);
  return {plan, with_zero_pp(plan)};
}

std::array<Phases, 2> predicted(double network) {
  auto const [base, zero_pp] = plans();
  Cluster const cluster = dgx_2(gpus, network);
  return {phases_of(gpt_18b(), base, cluster), phases_of(gpt_18b(), zero_pp, cluster)};
}

double sum(Phases const& phases) { return phases[0] + phases[1] + phases[2]; }

double gain(std::array<Phases, 2> const& seconds) { return sum(seconds[0]) / sum(seconds[1]); }

constexpr double measured_gain() {
  double base = 0, zero_pp = 0;
  for (std::size_t phase = 0; phase < 3; ++phase) {
    base += measured[0].seconds[phase];
    zero_pp += measured[1].seconds[phase];
  }
  return base / zero_pp;
}

// The largest error of what the network moves, the forwards, the backwards and the gain, in units of what each may be off.
double worst_error(double network) {
  constexpr double phase_bar = 0.15, gain_bar = 0.05;
  std::array<Phases, 2> const seconds = predicted(network);
  double worst = std::abs(gain(seconds) / measured_gain() - 1) / gain_bar;
  for (std::size_t run = 0; run < measured.size(); ++run)
    for (std::size_t phase : {0U, 1U})
      worst = std::max(worst, std::abs(seconds[run][phase] / measured[run].seconds[phase] - 1) / phase_bar);
  return worst;
}

// By golden sections of the logarithm, up to all of a DGX-2's eight 100 Gb/s.
double fitted_network() {
  constexpr double section = 0.6180339887498949, precision = 0.005;
  double low = std::log(5e9), high = std::log(100e9);
  double left = high - section * (high - low), right = low + section * (high - low);
  double at_left = worst_error(std::exp(left)), at_right = worst_error(std::exp(right));
  while (high - low > precision) {
    bool const lower = at_left < at_right;
    (lower ? high : low) = lower ? right : left;
    (lower ? right : left) = lower ? left : right;
    (lower ? at_right : at_left) = lower ? at_left : at_right;
    double const fresh = lower ? high - section * (high - low) : low + section * (high - low);
    (lower ? left : right) = fresh;
    (lower ? at_left : at_right) = worst_error(std::exp(fresh));
  }
  return std::exp((low + high) / 2);
}

} // namespace

Plan deepspeed_zero_3(std::int64_t sequence_tokens, int world) {
  Plan plan;
  plan.dp = world;
  plan.zero_stage = 3;
  plan.sequence_length = sequence_tokens;
  plan.global_batch = world;
  plan.parameter_dtype = DType::fp16;
  plan.recompute = Recompute::full;
  return as_run_by(read_framework(FOREPLAN_FRAMEWORKS "/megatron-deepspeed-zero.json"), plan);
}

Plan with_zero_pp(Plan plan) {
  plan.sharding.inner_group = 16;
  plan.sharding.secondary_shard = true;
  plan.sharding.weight_bits = 8;
  plan.sharding.gradient_bits = 4;
  return plan;
}

double zero_pp_gain(Model const& model, CsvRow const& row) {
  auto const world = static_cast<int>(row.required("gpus"));
  Plan const plan = deepspeed_zero_3(static_cast<std::int64_t>(row.required("tokens_per_gpu_micro_batch")), world);
  Cluster const cluster = dgx_2(world, row.required("internode_GBps_per_node") * 1e9);
  return simulate(model, plan, cluster).step / simulate(model, with_zero_pp(plan), cluster).step;
}

ZeroPpPhases zero_pp_phases() {
  ZeroPpPhases result;
  result.network = fitted_network();
  std::array<Phases, 2> const seconds = predicted(result.network);
  std::array<double, 2> peaks{};
  for (std::size_t run = 0; run < measured.size(); ++run) {
    for (std::size_t phase = 0; phase < phase_names.size(); ++phase)
      result.phases.push_back({fmt::format("{} {}, s", measured[run].name, phase_names[phase]),
                               measured[run].seconds[phase], seconds[run][phase]});
    peaks[run] = peak_memory(gpt_18b(), plans()[run]).value() / 1e9;
    result.phases.push_back({fmt::format("{} peak, GB", measured[run].name), measured[run].peak, peaks[run]});
  }
  result.gain = {"ZeRO-3 over ZeRO++", measured_gain(), gain(seconds)};
  result.growth = {"ZeRO++ more than ZeRO-3, GB", measured[1].peak - measured[0].peak, peaks[1] - peaks[0]};
  return result;
}

std::string zero_pp_phases_text(ZeroPpPhases const& phases) {
  std::vector<std::vector<std::string>> lines{{"", "measured", "predicted", "error"}};
  auto add = [&](JudgedPhase const& phase) {
    lines.push_back({phase.what, fmt::format("{:.3f}", phase.measured), fmt::format("{:.3f}", phase.predicted),
                     fmt::format("{:+.1f} %", 100 * (phase.predicted / phase.measured - 1))});
  };
  std::for_each(phases.phases.begin(), phases.phases.end(), add);
  add(phases.gain);
  add(phases.growth);
  return fmt::format(
             "One step of GPT 18B, {} V100, {} tokens each (DeepSpeed, docs/_tutorials/zeropp.md); the network, "
             "not stated, fitted: {:.1f} GB/s a node\n\n",
             gpus, tokens, phases.network / 1e9) +
         table(lines);
}

} // namespace foreplan

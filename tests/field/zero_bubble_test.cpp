// The runs of Zero Bubble Pipeline Parallelism (arXiv 2401.10241, tables 3 to 5), beside what Foreplan says: eight A100 of
// 80 GB a node, pipelines of 8 and 32 stages, four schedules. Settings as in the authors' script
// (examples/pretrain_zero_bubble.sh): fp16 with gradients of the parameters' dtype, untied embeddings, dropout; unfused
// attention as Megatron-LM had it.
//
// The authors validate the gradients' norm after the optimizer (post-validation), so that their zero-bubble steps have no
// barrier: stage 0 begins the next step while the last stage ends this one. A step of Foreplan ends with the barrier. Of
// zb-h1 and zb-h2 the second time is without it: the longest that a stage takes from its first pass to its last, and the
// optimizer.
#include "cluster/read_profile.hpp"
#include "planner/simulate.hpp"
#include "tests/catch.hpp"
#include "validate/calibrate/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <vector>

using namespace foreplan;

namespace {

std::string const root = FOREPLAN_ROOT "/";

struct Run {
  std::string name;
  double measured = 0, predicted = 0; // seconds a step
  double measured_memory = 0, predicted_memory = 0;
  [[nodiscard]] double time_error() const { return predicted / measured - 1; }
  [[nodiscard]] double memory_error() const { return predicted_memory / measured_memory - 1; }
};

int whole(CsvRow const& row, char const* column) { return static_cast<int>(row.required(column)); }

Model model_of(CsvRow const& row) {
  Model model;
  model.name = fmt::format("gpt, hidden {}", whole(row, "hidden"));
  model.layers = whole(row, "layers");
  model.hidden = whole(row, "hidden");
  model.heads = model.kv_heads = whole(row, "heads");
  model.head_size = model.hidden / model.heads;
  model.ffn = whole(row, "ffn");
  model.vocabulary = whole(row, "vocabulary");
  model.max_positions = whole(row, "sequence_length");
  model.norm = NormKind::layer_norm;
  model.activation = Activation::gelu;
  model.positions = Positions::learned;
  model.biases = model.dropout = true;
  return model;
}

Schedule schedule_named(std::string const& name) {
  for (int i = 0; i < schedule_count; ++i)
    if (to_string(static_cast<Schedule>(i)) == name)
      return static_cast<Schedule>(i);
  throw std::runtime_error("no schedule " + name);
}

Plan plan_of(CsvRow const& row) {
  Plan plan;
  plan.schedule = schedule_named(row.text("schedule"));
  plan.pp = whole(row, "pp");
  plan.chunks = whole(row, "chunks");
  plan.p2p = plan.schedule == Schedule::one_f_one_b ? P2p::synchronous : P2p::overlapped;
  plan.sequence_length = whole(row, "sequence_length");
  plan.micro_batch = whole(row, "micro_batch");
  plan.global_batch = plan.micro_batch * whole(row, "micro_batches");
  plan.parameter_dtype = plan.gradient_dtype = plan.reduction_dtype = DType::fp16;
  plan.attention = Attention::unfused;
  return plan;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double percentile_90(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() * 9 / 10];
}

std::string errors(std::vector<Run> const& runs, double (Run::*error)() const) {
  std::vector<double> sizes;
  for (Run const& run : runs)
    sizes.push_back(100 * std::abs((run.*error)()));
  return fmt::format("median {:.1f} %, p90 {:.1f} %", median(sizes), percentile_90(sizes));
}

// Pairs of schedules of one model and number of micro-batches whose measured times differ by more than 2 %.
struct Order {
  int pairs = 0, right = 0;
};
Order order_of(std::vector<Run> const& runs, std::vector<std::string> const& groups) {
  Order order;
  for (std::size_t a = 0; a < runs.size(); ++a)
    for (std::size_t b = a + 1; b < runs.size(); ++b)
      if (groups[a] == groups[b] && std::abs(runs[a].measured / runs[b].measured - 1) > 0.02) {
        ++order.pairs;
        order.right += (runs[a].measured < runs[b].measured) == (runs[a].predicted < runs[b].predicted) ? 1 : 0;
      }
  return order;
}

} // namespace

TEST_CASE("the zero-bubble paper's runs", "[slow]") {
  CsvTable const table = read_csv(root + "tests/field/zero_bubble.csv");
  HardwareProfile const profile = read_profile(root + "hardware_profiles/dgx-a100.json");
  std::vector<Run> runs;
  std::vector<std::string> groups;
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    CsvRow const row(table, r);
    Model const model = model_of(row);
    Plan const plan = plan_of(row);
    Cluster const cluster{profile, plan.world_size() / profile.node.devices, {}};
    Simulation const simulation = run_plan(model, plan, cluster, {.segments = true});
    double const step = simulation.timeline.step.value();
    runs.push_back(
        {fmt::format("{:<8} {:<17} {:<11} m {:>3}", row.text("run_id"), model.name, to_string(plan.schedule),
                     plan.micro_batches()),
         row.required("step_s"), splits_backward(plan.schedule) ? post_validated_step(simulation).value() : step,
         row.required("peak_memory_gb"), (peak_memory(model, plan).value() + profile.reserved.value()) / (1 << 30)});
    groups.push_back(fmt::format("{} {}", model.name, plan.micro_batches()));
    Run const& run = runs.back();
    std::cout << fmt::format("{}: {:.3f} s measured, {:.3f} with barrier, {:.3f} ({:+.1f} %); {:.0f} GB, {:.1f} GiB "
                             "({:+.1f} %)\n",
                             run.name, run.measured, step, run.predicted, 100 * run.time_error(), run.measured_memory,
                             run.predicted_memory, 100 * run.memory_error());
  }
  Order const order = order_of(runs, groups);
  std::cout << "time " << errors(runs, &Run::time_error) << "; memory " << errors(runs, &Run::memory_error)
            << "; order " << order.right << " of " << order.pairs << " pairs\n";
}

#include "validate/calibrate/kernels_fit.hpp"

#include "validate/calibrate/statistics.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <set>
#include <thread>

namespace foreplan {

namespace {

// A benchmark of kernels shorter than this leaves the device idle in between and escapes the power limit in part.
constexpr double burst_seconds = 100e-6;
constexpr FitParameter clock_prior{.prior = 1, .width = 0.3, .lowest = 0.4, .highest = 1.3};

// Clock of a product that takes `alone` at full clock, on a machine whose power limit allows `sustained`.
double burst_clock(double sustained, double alone) { return sustained + (1 - sustained) / (1 + alone / burst_seconds); }

// Rotary embedding and the write of the cache: queries, keys and values read and written, in two kernels.
double preparation_seconds(KernelMachine const& machine, AttentionShape const& shape) {
  constexpr double bytes = 2.0 * 2;
  auto const elements = static_cast<double>(shape.sequences * shape.length * (shape.heads + 2 * shape.kv_heads) *
                                            shape.key_size);
  return 2 * machine.quantize_fixed + bytes * elements / machine.memory_rate;
}

double cast_seconds(KernelMachine const& machine, GemmShape const& shape, bool prepares) {
  return prepares ? quantize_seconds(machine, shape.format, static_cast<double>(shape.m) * static_cast<double>(shape.k))
                  : 0;
}

// `clock`: of the row's machine, relative to the chip's.
double product_seconds(KernelMachine const& machine, double clock, GemmShape const& shape) {
  if (clock == 1)
    return gemm_seconds(machine, shape);
  KernelMachine slower = machine;
  double const rate = machine.rate[static_cast<std::size_t>(shape.format)] * machine.clock;
  slower.clock *= burst_clock(clock, flops_of(shape) / rate);
  return gemm_seconds(slower, shape);
}

double seconds_on(KernelMachine const& machine, double clock, MeasuredKernel const& row) {
  if (auto const* gemm = std::get_if<GemmShape>(&row.shape))
    return product_seconds(machine, clock, *gemm) + cast_seconds(machine, *gemm, row.prepares);
  if (auto const* attention = std::get_if<AttentionShape>(&row.shape)) {
    double const core = row.backward ? attention_backward_seconds(machine, *attention)
                                     : attention_forward_seconds(machine, *attention);
    return core + (row.prepares ? preparation_seconds(machine, *attention) : 0);
  }
  return 1 / machine.memory_rate;
}

// Machines with enough products for a clock of their own, most first.
std::vector<std::string> machines_of(std::vector<MeasuredKernel const*> const& rows) {
  std::map<std::string, int> counts;
  for (MeasuredKernel const* row : rows)
    if (std::holds_alternative<GemmShape>(row->shape))
      ++counts[row->machine];
  std::vector<std::string> machines;
  constexpr int enough = 20;
  for (auto const& [machine, count] : counts)
    if (count >= enough)
      machines.push_back(machine);
  std::ranges::stable_sort(machines, [&](auto const& a, auto const& b) { return counts[a] > counts[b]; });
  return machines;
}

double clock_of(std::vector<MachineClock> const& clocks, std::string const& machine) {
  for (MachineClock const& clock : clocks)
    if (clock.machine == machine)
      return clock.clock;
  return 1;
}

std::vector<FitParameter> fit_parameters(KnownChip const& chip, std::size_t clocks) {
  std::vector<FitParameter> parameters;
  for (KernelParameter const& parameter : kernel_parameters())
    parameters.push_back({parameter.prior, parameter.width, parameter.lowest, parameter.highest});
  if (chip.matrix_prior > 0)
    for (std::size_t i = kernel::matrix_16bit; i <= kernel::matrix_fp32; ++i)
      parameters[i].prior = chip.matrix_prior;
  parameters.resize(parameters.size() + clocks, clock_prior);
  return parameters;
}

void add_residuals(KernelFit& fit, std::vector<MeasuredKernel const*> const& rows) {
  KernelMachine const machine = kernel_machine(fit.chip, fit.parameters);
  for (MeasuredKernel const* row : rows) {
    auto const* shape = std::get_if<GemmShape>(&row->shape);
    if (shape == nullptr || shape->groups > 1 || correction_table(shape->format) < 0)
      continue;
    double const modelled = product_seconds(machine, clock_of(fit.clocks, row->machine), *shape);
    double const measured = std::max(row->seconds - cast_seconds(machine, *shape, row->prepares), 0.1 * modelled);
    constexpr double most = 0.3; // what a residual of a profile may be
    fit.residuals.push_back({.format = shape->format,
                             .accumulate = shape->accumulate,
                             .m = static_cast<double>(shape->m),
                             .n = static_cast<double>(shape->n),
                             .k = static_cast<double>(shape->k),
                             .log_ratio = std::clamp(std::log(measured / modelled), -most, most)});
    fit.residual_machines.push_back(row->machine);
  }
}

} // namespace

bool serves_a_fit(MeasuredKernel const& row) { return row.usable && row.trust != "C"; }

KernelFit fit_kernels(KnownChip const& chip, std::vector<MeasuredKernel const*> const& rows, KernelFit const* start) {
  KernelFit fitted;
  fitted.chip = chip.chip;
  fitted.parameters.clock_under_load = chip.clock_under_load;
  std::vector<MeasuredKernel const*> used;
  std::ranges::copy_if(rows, std::back_inserter(used), [](auto const* row) { return serves_a_fit(*row); });
  if (start)
    fitted.clocks = start->clocks;
  else
    for (std::string const& machine : machines_of(used))
      fitted.clocks.push_back({machine, 1});
  if (!start && !fitted.clocks.empty())
    fitted.clocks.erase(fitted.clocks.begin()); // the reference

  std::vector<int> clock_index; // of each row, into fitted.clocks; -1: the reference
  for (MeasuredKernel const* row : used) {
    auto const at = std::ranges::find(fitted.clocks, row->machine, &MachineClock::machine);
    clock_index.push_back(at == fitted.clocks.end() ? -1 : static_cast<int>(at - fitted.clocks.begin()));
  }
  KernelParameters parameters = fitted.parameters;
  auto model = [&](std::span<double const> values, std::span<double> log_ratios) {
    std::copy_n(values.begin(), kernel::count, parameters.values.begin());
    KernelMachine const machine = kernel_machine(fitted.chip, parameters);
    for (std::size_t i = 0; i < used.size(); ++i) {
      int const index = clock_index[i];
      double const clock = index < 0 ? 1 : values[kernel::count + static_cast<std::size_t>(index)];
      log_ratios[i] = std::log(seconds_on(machine, clock, *used[i]) / used[i]->seconds);
    }
  };
  FitOptions options;
  if (start) { // a fold: near the fit of all rows
    options.start = start->result.values;
    options.tolerance = 1e-5;
  }
  fitted.priors = fit_parameters(chip, fitted.clocks.size());
  fitted.result = fit(fitted.priors, used.size(), model, options);
  std::copy_n(fitted.result.values.begin(), kernel::count, fitted.parameters.values.begin());
  for (std::size_t i = 0; i < fitted.clocks.size(); ++i)
    fitted.clocks[i].clock = fitted.result.values[kernel::count + i];
  add_residuals(fitted, used);
  return fitted;
}

std::vector<ProductResidual> residuals_for(KernelFit const& fit, std::string const& machine) {
  constexpr double of_others = 0.1;
  std::vector<ProductResidual> residuals = fit.residuals;
  for (std::size_t i = 0; i < residuals.size(); ++i)
    if (!machine.empty() && fit.residual_machines[i] != machine)
      residuals[i].weight *= of_others;
  return residuals;
}

std::vector<double> predicted_seconds(KernelFit const& fit, std::vector<MeasuredKernel const*> const& rows) {
  std::map<std::string, KernelParameters> of_machine;
  std::vector<double> seconds;
  for (MeasuredKernel const* row : rows) {
    auto [found, is_new] = of_machine.try_emplace(row->machine, fit.parameters);
    KernelParameters& parameters = found->second;
    if (is_new)
      parameters.correction = product_correction(fit.chip, parameters, residuals_for(fit, row->machine));
    seconds.push_back(seconds_on(kernel_machine(fit.chip, parameters), clock_of(fit.clocks, row->machine), *row));
  }
  return seconds;
}

KernelAccuracy leave_families_out(KnownChip const& chip, std::vector<MeasuredKernel const*> const& rows,
                                  std::vector<MeasuredKernel const*> const& judged) {
  KernelAccuracy accuracy;
  accuracy.fit = fit_kernels(chip, rows);
  accuracy.rows = judged;
  accuracy.log_ratios.assign(judged.size(), 0);
  std::set<std::string> names;
  for (MeasuredKernel const* row : judged)
    names.insert(row->family);
  std::vector<std::string> const families(names.begin(), names.end());

  auto judge = [&](std::string const& family) {
    std::vector<MeasuredKernel const*> others, left_out;
    std::ranges::copy_if(rows, std::back_inserter(others), [&](auto const* row) { return row->family != family; });
    std::ranges::copy_if(judged, std::back_inserter(left_out), [&](auto const* row) { return row->family == family; });
    KernelFit const fold = fit_kernels(chip, others, &accuracy.fit);
    std::vector<double> const seconds = predicted_seconds(fold, left_out);
    for (std::size_t i = 0, k = 0; i < judged.size(); ++i)
      if (judged[i]->family == family)
        accuracy.log_ratios[i] = std::log(seconds[k++] / judged[i]->seconds);
  };
  std::atomic<std::size_t> next{0}; // folds are independent: any thread may take any
  auto work = [&] {
    for (std::size_t i = next++; i < families.size(); i = next++)
      judge(families[i]);
  };
  std::vector<std::jthread> threads;
  for (unsigned i = 1; i < std::max(1U, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back(work);
  work();
  threads.clear(); // joins

  for (std::size_t kind = 0; kind < kernel::class_count; ++kind) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < judged.size(); ++i)
      if (judged[i]->kind == static_cast<kernel::Class>(kind) && serves_a_fit(*judged[i]))
        ratios.push_back(accuracy.log_ratios[i]);
    constexpr std::size_t fewest = 3; // one or two say nothing of a spread
    accuracy.band[kind] = ratios.size() < fewest ? 0 : log_spread(ratios);
  }
  return accuracy;
}

} // namespace foreplan

#include "validate/devices/measure.hpp"

#include "timeline/memory.hpp"
#include "validate/devices/clock.hpp"

#include <algorithm>
#include <cmath>

#include <unistd.h>

namespace foreplan {
namespace {

double last_end(std::vector<OpTimes> const& times) {
  double last = 0;
  for (OpTimes const& op : times)
    last = std::max(last, op.end);
  return last;
}

std::vector<OpTimes> since(double begin, std::vector<OpTimes> times) {
  for (OpTimes& op : times)
    op = {op.arrival - begin, op.start - begin, op.end - begin};
  return times;
}

bool settled(std::vector<double> const& steps, RepeatOptions const& options) {
  if (static_cast<int>(steps.size()) < std::max(options.least, 6)) // fewer have no interval
    return false;
  Median const median = median_of(steps);
  return std::max(median.high - median.value, median.value - median.low) <= options.width * median.value;
}

std::size_t median_repeat(std::vector<double> const& steps) {
  double const median = median_of(steps).value;
  auto const distance = [median](double step) { return std::abs(step - median); };
  auto const nearest = std::min_element(steps.begin(), steps.end(),
                                        [&](double a, double b) { return distance(a) < distance(b); });
  return static_cast<std::size_t>(nearest - steps.begin());
}

std::vector<double> median_seconds(std::vector<std::vector<OpTimes>> const& repeats) {
  std::vector<double> result(repeats.front().size());
  std::vector<double> values(repeats.size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    for (std::size_t repeat = 0; repeat < repeats.size(); ++repeat)
      values[repeat] = repeats[repeat][i].end - repeats[repeat][i].start;
    result[i] = median_of(values).value;
  }
  return result;
}

// The contributions of all ranks, by rank, on rank 0.
template <class T>
std::vector<std::vector<T>> gather(std::vector<T> const& own, MPI_Comm world) {
  int self = 0, ranks = 0;
  MPI_Comm_rank(world, &self);
  MPI_Comm_size(world, &ranks);
  int const count = static_cast<int>(own.size() * sizeof(T));
  std::vector<int> counts(static_cast<std::size_t>(ranks));
  MPI_Gather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, 0, world);
  if (self != 0) {
    MPI_Send(own.data(), count, MPI_BYTE, 0, 0, world);
    return {};
  }
  std::vector<std::vector<T>> all(
      static_cast<std::size_t>(ranks)); // received one by one: together they may exceed an int
  all[0] = own;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    all[rank].resize(static_cast<std::size_t>(counts[rank]) / sizeof(T));
    MPI_Recv(all[rank].data(), counts[rank], MPI_BYTE, static_cast<int>(rank), 0, world, MPI_STATUS_IGNORE);
  }
  return all;
}

std::vector<char> host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  std::string const text(name);
  return {text.begin(), text.end()};
}

} // namespace

Median median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::size_t const n = values.size();
  if (n == 0)
    return {};
  // The k-th value from either end leaves out no more than 2.5 %: P(at most k - 1 of n fair coins show heads).
  std::size_t k = 0;
  double term = std::pow(0.5, static_cast<double>(n));
  for (double sum = term; sum <= 0.025; sum += term) {
    ++k;
    term *= static_cast<double>(n - k + 1) / static_cast<double>(k);
  }
  std::size_t const outer = k == 0 ? 0 : k - 1;
  return {(values[(n - 1) / 2] + values[n / 2]) / 2, values[outer], values[n - 1 - outer]};
}

Measurement measure(Runner& runner, MPI_Comm world, Job& job, RepeatOptions const& options) {
  Measurement result;
  result.clock_offset = clock_offset(world, job.node());
  for (int step = 0; step < options.warm_up + options.most && !result.settled; ++step) {
    job.doing("waiting for the other ranks at the begin of a step");
    runner.prepare_step();
    double const begin = start_together(world, result.clock_offset);
    runner.run_step();
    result.losses.push_back(runner.holds_loss() ? runner.loss() : 0);
    if (step < options.warm_up)
      continue;
    result.times.push_back(since(begin, runner.times()));
    double const own = last_end(result.times.back());
    double longest = 0;
    job.doing("waiting for the other ranks at the end of a step");
    MPI_Allreduce(&own, &longest, 1, MPI_DOUBLE, MPI_MAX, world);
    result.steps.push_back(longest);
    result.settled = settled(result.steps, options);
  }
  result.clock_drift = clock_offset(world, job.node()) - result.clock_offset;
  return result;
}

Run gather_run(Program const& program, Runner const& runner, Measurement const& measurement, MPI_Comm world) {
  struct Facts {
    std::int64_t peak, predicted_peak, pool;
    double clock_offset, clock_drift;
  };
  StageStorage const& layout = runner.memory().layout;
  StageProgram const& stage = program.stages[static_cast<std::size_t>(runner.coordinate().pp)];
  std::size_t const repeat = median_repeat(measurement.steps);
  auto const facts = gather<Facts>(
      {{layout.peak, memory_of(program, stage).peak.use.total(), layout.size - 2 * (layout.labels - layout.tokens),
        measurement.clock_offset, measurement.clock_drift}},
      world);
  auto const hosts = gather(host_name(), world);
  auto times = gather(measurement.times[repeat], world);
  auto seconds = gather(median_seconds(measurement.times), world);
  auto const losses = gather(measurement.losses, world);
  Run run{median_of(measurement.steps), measurement.steps, {}, measurement.settled, {}};
  for (std::size_t rank = 0; rank < facts.size(); ++rank)
    run.ranks.push_back({{hosts[rank].begin(), hosts[rank].end()},
                         facts[rank].front().peak,
                         facts[rank].front().predicted_peak,
                         facts[rank].front().pool,
                         facts[rank].front().clock_offset,
                         facts[rank].front().clock_drift,
                         std::move(times[rank]),
                         std::move(seconds[rank])});
  if (!losses.empty())
    run.losses = losses[rank_at(program.plan, {.pp = program.plan.pp - 1}).index()];
  return run;
}

} // namespace foreplan

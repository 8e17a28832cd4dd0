#include "planner/step_band.hpp"

#include "engine/explain_timeline.hpp"
#include "engine/partition.hpp"

#include <array>
#include <cmath>

namespace foreplan {

namespace {

enum OpClass : std::size_t { gemm, attention, memory_bound, communication, op_classes };

OpClass class_of(Op const& op) {
  if (is_communication(op.kind))
    return communication;
  switch (kernel_class(op.kind)) {
    case KernelClass::gemm: return gemm;
    case KernelClass::attention: return attention;
    default: return memory_bound;
  }
}

// Seconds alone of the ops of a class; those with a band, and times it.
struct ClassSum {
  double all = 0;
  double known = 0;
  double deviation = 0;
};
using ClassSums = std::array<ClassSum, op_classes>;

void add(ClassSums& sums, Op const& op, Demand const& demand) {
  if (is_host_work(op.stream))
    return;
  double const seconds = alone_seconds(demand).value();
  ClassSum& sum = sums[class_of(op)];
  sum.all += seconds;
  sum.known += demand.band > 0 ? seconds : 0;
  sum.deviation += demand.band * seconds;
}

// Over all blocks, each once: what a class's ops are like, not how often they run.
ClassSums sums_of(Folding const& folding) {
  ClassSums sums;
  for (std::size_t b = 0; b < folding.blocks.size(); ++b) {
    BlockOrigin const& origin = folding.blocks[b];
    if (is_segment(origin))
      continue; // its layers have blocks of their own
    std::vector<Item> const& items = folding.program.blocks[b].items;
    for (std::size_t i = 0; i < items.size(); ++i)
      add(sums, op_of(origin, i), folding.program.demands[static_cast<std::size_t>(items[i].demand)]);
  }
  return sums;
}

std::array<double, op_classes> seconds_of(CriticalPath const& path) {
  auto const seconds = [&](PathKind kind) { return path.by_kind[static_cast<std::size_t>(kind)].value(); };
  return {seconds(PathKind::gemm), seconds(PathKind::attention), seconds(PathKind::memory_bound),
          seconds(PathKind::tp) + seconds(PathKind::cp) + seconds(PathKind::dp) + seconds(PathKind::pp)};
}

} // namespace

StepBand step_band(Folding const& folding, CriticalPath const& path) {
  ClassSums const sums = sums_of(folding);
  std::array<double, op_classes> const seconds = seconds_of(path);
  double known = 0;
  double variance = 0;
  for (std::size_t c = 0; c < op_classes; ++c) {
    ClassSum const& sum = sums[c];
    if (sum.known == 0)
      continue;
    double const of_class = seconds[c] * sum.known / sum.all;
    known += of_class;
    variance += std::pow(of_class * sum.deviation / sum.known, 2);
  }
  constexpr double least_known = 0.5;
  double const share = known > 0 ? known / sum(path.by_kind).value() : 0;
  return {share < least_known ? 0 : std::sqrt(variance) / known, share};
}

} // namespace foreplan

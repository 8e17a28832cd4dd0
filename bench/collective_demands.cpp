// Collective times a second, on one core: the inner function on a prepared curve, and with the curve made for each.
#include "timing/collectives/curve.hpp"

#include <chrono>
#include <fmt/format.h>
#include <random>
#include <vector>

using namespace foreplan;

namespace {

GroupShape shape(int members, int nodes) {
  return {.members = members,
          .nodes = nodes,
          .on_a_node = members / nodes,
          .node_devices = 8,
          .scale_up = 450e9,
          .network = 50e9 * members / nodes};
}

// The best of five runs: what the machine can do when nobody else uses it. The sum keeps the work from being dropped.
template <class Work>
void measure(char const* name, int count, Work const& work) {
  double best = 1e300, sum = 0;
  for (int run = 0; run < 5; ++run) {
    auto const begin = std::chrono::steady_clock::now();
    sum = work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  fmt::print("{:<44} {:>8.2f} M/s   (sum {:.6f} s)\n", name, count / best / 1e6, sum);
}

} // namespace

int main() {
  CollectiveModel model{.library = CollectiveLibrary::nccl,
                        .topology = ScaleUp::switched,
                        .values = collective_priors(CollectiveLibrary::nccl),
                        .residuals = {},
                        .band = 0};
  for (int members : {2, 4, 8, 16, 64})
    for (CollectiveOp op : {CollectiveOp::all_reduce, CollectiveOp::all_gather, CollectiveOp::reduce_scatter}) {
      CollectiveResidual curve{
          .op = op, .members = members, .nodes = members > 8 ? members / 8 : 1, .weight = 1, .octaves = {}};
      for (int octave = first_octave; octave < 34; ++octave)
        curve.octaves.push_back({octave, 0.05});
      model.residuals.push_back(std::move(curve));
    }
  constexpr int count = 2'000'000;
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> octaves(10, 33);
  std::vector<double> sizes(4096);
  for (double& size : sizes)
    size = std::exp2(octaves(random));
  for (auto const& [name, where] : {std::pair{"all-reduce, 8 in a node, prepared curve", shape(8, 1)},
                                    std::pair{"all-reduce, 64 in 8 nodes, prepared curve", shape(64, 8)}}) {
    CollectiveCurve const curve = collective_curve(CollectiveOp::all_reduce, where, model);
    measure(name, count, [&] {
      double sum = 0;
      for (int i = 0; i < count; ++i)
        sum += collective_time(curve, sizes[static_cast<std::size_t>(i) % sizes.size()]).seconds;
      return sum;
    });
  }
  constexpr int fewer = 200'000;
  measure("all-reduce, 64 in 8 nodes, with its curve", fewer, [&] {
    double sum = 0;
    for (int i = 0; i < fewer; ++i)
      sum += collective_time(CollectiveOp::all_reduce, shape(64, 8), model,
                             sizes[static_cast<std::size_t>(i) % sizes.size()])
                 .seconds;
    return sum;
  });
  return 0;
}

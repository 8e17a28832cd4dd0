#include "interpreter/data.hpp"

#include <cmath>
#include <numeric>

namespace foreplan {
namespace {

// splitmix64's finaliser: every bit of the result depends on every bit of the argument.
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

// The order matters: (a, b) and (b, a) differ.
std::uint64_t mix(std::uint64_t state, std::int64_t value) {
  return mix(3 * state + mix(static_cast<std::uint64_t>(value)));
}

std::uint64_t mix(std::uint64_t state, std::string const& text) {
  for (char c : text)
    state = mix(state, std::int64_t{static_cast<unsigned char>(c)});
  return state;
}

// Uniform in [-1, 1).
double uniform(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-52 - 1; }

// Vectors (norms, biases) vary by 0.2; matrices by 1 / sqrt(columns of the last dimension), which keeps activations and
// logits of small models of order one.
double spread(Parameter const& parameter, bool norm_weight) {
  if (norm_weight || parameter.full_shape.size() == 1)
    return 0.2;
  return 1.5 /
         std::sqrt(static_cast<double>(parameter.transposed ? parameter.full_shape[0] : parameter.full_shape.back()));
}

} // namespace

std::int64_t global_sequence(Plan const& plan, int data_index, std::int64_t micro_batch, std::int64_t row) {
  return (data_index * plan.micro_batches() + micro_batch) * plan.micro_batch + row;
}

std::int64_t token_id(std::uint64_t seed, int step, std::int64_t sequence, std::int64_t position,
                      std::int64_t vocabulary) {
  std::uint64_t const bits = mix(mix(mix(mix(seed), step), sequence), position);
  return static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(vocabulary));
}

namespace {

// As they are stored.
std::vector<std::int64_t> stored_positions(Parameter const& parameter, int tp_index) {
  AxisPlacement const placement = parameter.placement[Axis::tp];
  std::vector<std::int64_t> positions(static_cast<std::size_t>(parameter.elements()));
  if (placement.kind != AxisPlacement::Kind::sharded) {
    std::iota(positions.begin(), positions.end(), 0);
    return positions;
  }
  // The dimensions from the cut one on are runs of the shard inside longer runs of the whole.
  std::int64_t run = 1;
  std::int64_t full_run = 1;
  auto const cut = static_cast<std::size_t>(static_cast<unsigned char>(placement.dimension)); // >= 0 when sharded
  for (std::size_t i = cut; i < parameter.shape.size(); ++i) {
    run *= parameter.shape[i];
    full_run *= parameter.full_shape[i];
  }
  for (std::int64_t local = 0; local < parameter.elements(); ++local)
    positions[static_cast<std::size_t>(local)] = local / run * full_run + tp_index * run + local % run;
  return positions;
}

} // namespace

std::vector<std::int64_t> positions_in_full(Parameter const& parameter, int tp_index) {
  std::vector<std::int64_t> positions = stored_positions(parameter, tp_index);
  if (parameter.transposed)
    for (std::int64_t& position : positions)
      position = position % parameter.full_shape[1] * parameter.full_shape[0] + position / parameter.full_shape[1];
  return positions;
}

std::vector<double> initial_shard(std::uint64_t seed, Parameter const& parameter, int layer, bool norm_weight,
                                  int tp_index) {
  std::uint64_t const state = parameter.tied ? mix(mix(seed), std::string("tied"))
                                             : mix(mix(mix(seed), layer), parameter.name);
  double const centre = norm_weight ? 1 : 0;
  double const width = spread(parameter, norm_weight);
  std::vector<double> values;
  for (std::int64_t position : positions_in_full(parameter, tp_index))
    values.push_back(centre + width * uniform(mix(state, position)));
  return values;
}

} // namespace foreplan

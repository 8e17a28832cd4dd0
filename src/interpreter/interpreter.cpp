#include "interpreter/interpreter.hpp"

#include "interpreter/data.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <stdexcept>

namespace foreplan {
namespace {

// Parameters that some norm of the layer multiplies by.
std::set<std::int32_t> norm_weights(LayerProgram const& layer) {
  std::set<std::int32_t> indices;
  for (Op const& op : layer.forward)
    if (op.kind == OpKind::norm_forward)
      indices.insert(layer[op.reads[1]].buffer.index);
  return indices;
}

std::int64_t product(std::vector<std::int64_t> const& shape) {
  std::int64_t result = 1;
  for (std::int64_t size : shape)
    result *= size;
  return result;
}

double larger_or_nan(double a, double b) { return a >= b || std::isnan(a) ? a : b; }

double largest_difference(std::vector<double> const& a, std::vector<double> const& b) {
  double result = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    result = larger_or_nan(result, std::abs(a[i] - b[i]));
  return result;
}

} // namespace

template <class Scalar>
Interpreter<Scalar>::Interpreter(Program const& program, TrainingParameters const& training, Reuse reuse)
    : program_(program), training_(training) {
  for (StageProgram const& stage : program.stages) {
    stages_.push_back(lay_out(program, stage, reuse));
    find_masters(stages_.size() - 1);
    find_homes(stages_.size() - 1);
  }
  graph_ = make_execution_graph(program, stages_);
  for (int rank = 0; rank < program.plan.world_size(); ++rank) {
    RankState state;
    state.coordinate = coordinate_of(program.plan, Rank(rank));
    state.storage = &stages_[static_cast<std::size_t>(state.coordinate.pp)];
    state.context = {state.coordinate, program.plan.gradient_clip, training, 1};
    ranks_.push_back(std::move(state));
    initialise(ranks_.back());
  }
  reset();
}

template <class Scalar>
void Interpreter<Scalar>::find_masters(std::size_t stage) {
  StageStorage const& storage = stages_[stage];
  std::vector<Master>& masters = masters_.emplace_back();
  for (BoundInstance const& instance : storage.bound) {
    if (instance.op->kind != OpKind::adam)
      continue;
    BoundOperand const* writes = storage.operands.data() + instance.first_operand + instance.reads;
    BoundOperand const& parameter = writes[3];
    BufferId const buffer(parameter.tensor->buffer.index);
    std::int64_t const base = storage.persistent[buffer.index()];
    masters.push_back({buffer, parameter.address - base, parameter.per_dp_index, parameter.tensor->elements(),
                       parameter, writes[0], writes[1], writes[2]});
  }
}

template <class Scalar>
void Interpreter<Scalar>::find_homes(std::size_t stage) {
  std::vector<Home>& homes = homes_.emplace_back();
  StageProgram const& program = program_.stages[stage];
  for (std::size_t layer = 0; layer < program.layers.size(); ++layer) {
    if (program.layers[layer].program < 0)
      continue;
    LayerProgram const& kind = program_.layer_programs[static_cast<std::size_t>(program.layers[layer].program)];
    std::set<std::int32_t> const norms = norm_weights(kind);
    for (std::size_t i = 0; i < kind.parameters.size(); ++i) {
      ParameterHome const& home = program.layers[layer].homes[i];
      homes.push_back({static_cast<int>(layer), &kind.parameters[i], home.parameters, home.offset,
                       norms.contains(static_cast<std::int32_t>(i))});
    }
  }
}

template <class Scalar>
void Interpreter<Scalar>::initialise(RankState& rank) {
  StageStorage const& storage = *rank.storage;
  auto const stage = static_cast<std::size_t>(rank.coordinate.pp);
  rank.memory.assign(static_cast<std::size_t>(storage.size), Scalar(0)); // also the padding between parameters
  for (Home const& home : homes_[stage]) {
    std::vector<double> const values = initial_shard(training_.seed, *home.parameter, home.layer, home.norm_weight,
                                                     rank.coordinate.tp);
    auto const begin = rank.memory.begin() + storage.persistent[home.parameters.index()] + home.offset;
    std::transform(values.begin(), values.end(), begin, [](double value) { return static_cast<Scalar>(value); });
  }
  for (Master const& master : masters_[stage]) {
    int const dp = rank.coordinate.dp;
    auto const from = rank.memory.begin() + master.parameter.at(dp);
    std::copy(from, from + master.count, rank.memory.begin() + master.master.at(dp));
  }
  rank.initial = rank.memory;
}

template <class Scalar>
void Interpreter<Scalar>::reset() {
  for (RankState& rank : ranks_)
    std::copy(rank.initial.begin(), rank.initial.end(), rank.memory.begin());
  step_ = 0;
}

template <class Scalar>
void Interpreter<Scalar>::prepare_step(RankState& rank) {
  StageStorage const& storage = *rank.storage;
  Plan const& plan = program_.plan;
  for (Range range : storage.undefined[static_cast<std::size_t>(rank.coordinate.dp)])
    std::fill(rank.memory.begin() + range.begin, rank.memory.begin() + range.end,
              std::numeric_limits<Scalar>::quiet_NaN());
  Scalar* token = rank.memory.data() + storage.tokens;
  Scalar* label = rank.memory.data() + storage.labels;
  for (std::int64_t micro_batch = 0; micro_batch < plan.micro_batches(); ++micro_batch)
    for (std::int64_t row = 0; row < plan.micro_batch; ++row) {
      std::int64_t const sequence = global_sequence(plan, rank.coordinate.dp, micro_batch, row);
      for (std::int64_t position = 0; position < plan.sequence_length; ++position) {
        auto id = [&](std::int64_t at) {
          return static_cast<Scalar>(token_id(training_.seed, step_, sequence, at, program_.model.vocabulary));
        };
        *token++ = id(position);
        *label++ = id(position + 1);
      }
    }
  rank.context.step = step_;
}

template <class Scalar>
void Interpreter<Scalar>::step(Order const& order) {
  ++step_;
  gradient_norm_ = 0;
  for (RankState& rank : ranks_)
    prepare_step(rank);
  execute(program_, stages_, graph_, order, [this](std::size_t node) { run_node(node); });
}

template <class Scalar>
View<Scalar> Interpreter<Scalar>::view(RankState& rank, BoundOperand const& operand) const {
  return {rank.memory.data() + operand.at(rank.coordinate.dp), operand.tensor};
}

template <class Scalar>
void Interpreter<Scalar>::run_node(std::size_t node) {
  std::span<ExecutionGraph::Member const> const members = graph_.members_of(node);
  RankState const& first = ranks_[static_cast<std::size_t>(members[0].rank)];
  Op const& op = *first.storage->bound[static_cast<std::size_t>(members[0].instance)].op;
  if (is_communication(op.kind))
    run_together(members, op);
  else
    run_instance(members[0]);
  for (ExecutionGraph::Member const& member : members) {
    RankState& rank = ranks_[static_cast<std::size_t>(member.rank)];
    release(rank, rank.storage->bound[static_cast<std::size_t>(member.instance)]);
  }
}

template <class Scalar>
void Interpreter<Scalar>::run_instance(ExecutionGraph::Member member) {
  RankState& rank = ranks_[static_cast<std::size_t>(member.rank)];
  BoundInstance const& instance = rank.storage->bound[static_cast<std::size_t>(member.instance)];
  BoundOperand const* operand = rank.storage->operands.data() + instance.first_operand;
  read_views_.clear();
  write_views_.clear();
  for (int i = 0; i < instance.reads; ++i)
    read_views_.push_back(view(rank, *operand++));
  for (int i = 0; i < instance.writes; ++i)
    write_views_.push_back(view(rank, *operand++));
  run_kernel<Scalar>(*instance.op, read_views_, write_views_, rank.context);
  if (instance.op->kind == OpKind::adam)
    gradient_norm_ = std::sqrt(static_cast<double>(read_views_[1].data[0]));
}

template <class Scalar>
void Interpreter<Scalar>::run_together(std::span<ExecutionGraph::Member const> members, Op const& op) {
  read_views_.clear();
  write_views_.clear();
  for (ExecutionGraph::Member const& member : members) {
    RankState& rank = ranks_[static_cast<std::size_t>(member.rank)];
    BoundInstance const& instance = rank.storage->bound[static_cast<std::size_t>(member.instance)];
    BoundOperand const* operand = rank.storage->operands.data() + instance.first_operand;
    if (instance.reads > 0)
      read_views_.push_back(view(rank, operand[0]));
    if (instance.writes > 0)
      write_views_.push_back(view(rank, operand[instance.reads]));
  }
  if (is_collective(op.kind)) {
    run_collective<Scalar>(op, read_views_, write_views_, scratch_);
    return;
  }
  if (read_views_[0].elements() != write_views_[0].elements())
    throw std::runtime_error("op '" + op.name + "': sent and received sizes differ");
  std::copy_n(read_views_[0].data, read_views_[0].elements(), write_views_[0].data);
}

template <class Scalar>
void Interpreter<Scalar>::release(RankState& rank, BoundInstance const& instance) {
  Range const* const first = rank.storage->releases.data() + instance.first_release;
  for (Range const& range : std::span(first, static_cast<std::size_t>(instance.release_count)))
    std::fill(rank.memory.begin() + range.begin, rank.memory.begin() + range.end,
              std::numeric_limits<Scalar>::quiet_NaN());
}

// ------------------------------------------------------------------------------------------------------------- results

namespace {

std::size_t stage_of_head(Plan const& plan) { return stage_of_part(plan, plan.pp * plan.chunks - 1).index(); }

} // namespace

template <class Scalar>
double Interpreter<Scalar>::loss() const {
  RankState const& rank = rank_state(0, 0, stage_of_head(program_.plan));
  return static_cast<double>(rank.memory[static_cast<std::size_t>(rank.storage->persistent[loss_buffer])]);
}

template <class Scalar>
typename Interpreter<Scalar>::RankState const& Interpreter<Scalar>::rank_state(int tp_index, int dp_index,
                                                                               std::size_t stage) const {
  Coordinate const coordinate{.tp = tp_index, .dp = dp_index, .pp = static_cast<int>(stage)};
  return ranks_[rank_at(program_.plan, coordinate).index()];
}

template <class Scalar>
std::vector<double> Interpreter<Scalar>::master_of(std::size_t stage, Home const& home, int tp_index,
                                                   int dp_index) const {
  std::vector<double> values(static_cast<std::size_t>(home.parameter->elements()),
                             std::numeric_limits<double>::quiet_NaN());
  std::int64_t const home_end = home.offset + home.parameter->elements();
  for (Master const& master : masters_[stage]) {
    if (master.parameters != home.parameters)
      continue;
    int const shards = master.per_dp_index == 0 ? 1 : program_.plan.dp;
    for (int shard = 0; shard < shards; ++shard) {
      int const dp = shards == 1 ? dp_index : shard;
      RankState const& rank = rank_state(tp_index, dp, stage);
      std::int64_t const begin = std::max(home.offset, master.first(dp));
      std::int64_t const end = std::min(home_end, master.first(dp) + master.count);
      for (std::int64_t i = begin; i < end; ++i)
        values[static_cast<std::size_t>(i - home.offset)] = static_cast<double>(
            rank.memory[static_cast<std::size_t>(master.master.at(dp) + i - master.first(dp))]);
    }
  }
  return values;
}

template <class Scalar>
Weights Interpreter<Scalar>::weights() const {
  Weights weights;
  for (std::size_t stage = 0; stage < stages_.size(); ++stage)
    for (Home const& home : homes_[stage]) {
      std::vector<double>& full = weights[{home.layer, home.parameter->name}];
      full.resize(static_cast<std::size_t>(product(home.parameter->full_shape)));
      for (int tp_index = 0; tp_index < program_.plan.tp; ++tp_index) {
        std::vector<double> const shard = master_of(stage, home, tp_index, 0);
        std::vector<std::int64_t> const positions = positions_in_full(*home.parameter, tp_index);
        for (std::size_t i = 0; i < shard.size(); ++i)
          full[static_cast<std::size_t>(positions[i])] = shard[i];
      }
    }
  return weights;
}

template <class Scalar>
double Interpreter<Scalar>::replica_difference() const {
  double result = 0;
  for (int tp_index = 0; tp_index < program_.plan.tp; ++tp_index)
    for (int dp_index = 0; dp_index < program_.plan.dp; ++dp_index) {
      RankState const& last = rank_state(tp_index, dp_index, stage_of_head(program_.plan));
      auto const address = static_cast<std::size_t>(last.storage->persistent[loss_buffer]);
      result = larger_or_nan(result, std::abs(static_cast<double>(last.memory[address]) - loss()));
      std::vector<std::vector<double>> tied; // the homes of the tied matrix, on any stage
      for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
        for (Home const& home : homes_[stage]) {
          std::vector<double> const values = master_of(stage, home, tp_index, dp_index);
          bool const cut = home.parameter->placement[Axis::tp].kind == AxisPlacement::Kind::sharded;
          result = larger_or_nan(result, largest_difference(values, master_of(stage, home, cut ? tp_index : 0, 0)));
          if (home.parameter->tied)
            tied.push_back(values);
        }
        RankState const& rank = rank_state(tp_index, dp_index, stage);
        for (Master const& master : masters_[stage])
          for (std::int64_t i = 0; i < master.count; ++i) {
            auto const parameter = static_cast<std::size_t>(master.parameter.at(dp_index) + i);
            auto const value = static_cast<std::size_t>(master.master.at(dp_index) + i);
            result = larger_or_nan(result, std::abs(static_cast<double>(rank.memory[parameter] - rank.memory[value])));
          }
      }
      for (std::vector<double> const& values : tied)
        result = larger_or_nan(result, largest_difference(values, tied.front()));
    }
  return result;
}

template class Interpreter<float>;
template class Interpreter<double>;

} // namespace foreplan

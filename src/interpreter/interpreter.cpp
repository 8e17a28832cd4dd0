#include "interpreter/interpreter.hpp"

#include "interpreter/data.hpp"
#include "program/token_layout.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>

namespace foreplan {
namespace {

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
    masters_.push_back(masters_of(program.plan, stage, stages_.back()));
    held_.push_back(held_parameters(program, stage));
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
void Interpreter<Scalar>::initialise(RankState& rank) {
  StageStorage const& storage = *rank.storage;
  auto const stage = static_cast<std::size_t>(rank.coordinate.pp);
  rank.memory.assign(static_cast<std::size_t>(storage.size), Scalar(0)); // also the padding between parameters
  for (HeldParameter const& held : held_[stage]) {
    std::vector<double> const values = initial_shard(training_.seed, *held.parameter, held.layer, held.norm_weight,
                                                     rank.coordinate.tp);
    auto put = [&](std::int64_t address, std::int64_t first, std::int64_t count) {
      std::transform(values.begin() + first, values.begin() + first + count, rank.memory.begin() + address,
                     [](double value) { return static_cast<Scalar>(value); });
    };
    if (std::int64_t const home = storage.persistent[held.parameters.index()]; home >= 0)
      put(home + held.offset, 0, held.parameter->elements());
    for (Master const& master : masters_[stage])
      if (MasterPart const part = part_of(held, master, rank.coordinate); part.count > 0)
        for (BoundOperand const* operand : {&master.parameter, &master.master})
          put(operand->on(rank.coordinate) + part.in_master, part.in_parameter, part.count);
  }
  rank.initial = rank.memory;
  rank.undefined = undefined_ranges(storage, rank.coordinate);
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
  for (Range range : rank.undefined)
    std::fill(rank.memory.begin() + range.begin, rank.memory.begin() + range.end,
              std::numeric_limits<Scalar>::quiet_NaN());
  Scalar* token = rank.memory.data() + storage.tokens;
  Scalar* label = rank.memory.data() + storage.labels;
  for (std::int64_t micro_batch = 0; micro_batch < plan.micro_batches(); ++micro_batch)
    for (std::int64_t t = 0; t < plan.tokens(); ++t) {
      TokenPlace const place = token_place(t, plan.sequence_length, plan.cp, rank.coordinate.cp);
      std::int64_t const sequence = global_sequence(plan, data_index(plan, rank.coordinate), micro_batch,
                                                    place.sequence);
      auto id = [&](std::int64_t at) {
        return static_cast<Scalar>(token_id(training_.seed, step_, sequence, at, program_.model.vocabulary));
      };
      *token++ = id(place.position);
      *label++ = id(place.position + 1);
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
  return {rank.memory.data() + operand.on(rank.coordinate), operand.tensor};
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

int stage_of_head(Plan const& plan) { return stage_of_part(plan, plan.pp * plan.chunks - 1).value(); }

} // namespace

template <class Scalar>
double Interpreter<Scalar>::loss() const {
  RankState const& rank = rank_state({.pp = stage_of_head(program_.plan)});
  return static_cast<double>(rank.memory[static_cast<std::size_t>(rank.storage->persistent[loss_buffer])]);
}

template <class Scalar>
typename Interpreter<Scalar>::RankState const& Interpreter<Scalar>::rank_state(Coordinate const& at) const {
  return ranks_[rank_at(program_.plan, at).index()];
}

template <class Scalar>
std::vector<double> Interpreter<Scalar>::master_of(HeldParameter const& held, Coordinate const& at) const {
  std::vector<double> values(static_cast<std::size_t>(held.parameter->elements()),
                             std::numeric_limits<double>::quiet_NaN());
  for (Master const& master : masters_[static_cast<std::size_t>(at.pp)]) {
    for (Rank const member : group_of(program_.plan, rank_at(program_.plan, at), master.shared_over())) {
      RankState const& rank = ranks_[member.index()];
      MasterPart const part = part_of(held, master, rank.coordinate);
      for (std::int64_t i = 0; i < part.count; ++i)
        values[static_cast<std::size_t>(part.in_parameter + i)] = static_cast<double>(
            rank.memory[static_cast<std::size_t>(master.master.on(rank.coordinate) + part.in_master + i)]);
    }
  }
  return values;
}

template <class Scalar>
Weights Interpreter<Scalar>::weights() const {
  Weights weights;
  for (std::size_t stage = 0; stage < stages_.size(); ++stage)
    for (HeldParameter const& held : held_[stage]) {
      std::vector<double>& full = weights[{held.layer, held.parameter->name}];
      full.resize(static_cast<std::size_t>(product(held.parameter->full_shape)));
      for (int tp_index = 0; tp_index < program_.plan.tp; ++tp_index) {
        std::vector<double> const shard = master_of(held, {.tp = tp_index, .pp = static_cast<int>(stage)});
        std::vector<std::int64_t> const positions = positions_in_full(*held.parameter, tp_index);
        for (std::size_t i = 0; i < shard.size(); ++i)
          full[static_cast<std::size_t>(positions[i])] = shard[i];
      }
    }
  return weights;
}

template <class Scalar>
double Interpreter<Scalar>::replica_difference() const {
  double result = 0;
  for (Rank const first : group_of(program_.plan, Rank(0), data_axes | Axis::tp)) {
    Coordinate at = coordinate_of(program_.plan, first);
    std::vector<std::vector<double>> tied; // the homes of the tied matrix, on any stage
    for (at.pp = 0; at.pp < program_.plan.pp; ++at.pp) {
      RankState const& rank = rank_state(at);
      for (HeldParameter const& held : held_[static_cast<std::size_t>(at.pp)]) {
        std::vector<double> const values = master_of(held, at);
        bool const cut = held.parameter->placement[Axis::tp].kind == AxisPlacement::Kind::sharded;
        Coordinate const like{.tp = cut ? at.tp : 0, .pp = at.pp};
        result = larger_or_nan(result, largest_difference(values, master_of(held, like)));
        if (held.parameter->tied)
          tied.push_back(values);
      }
      for (Master const& master : masters_[static_cast<std::size_t>(at.pp)])
        for (std::int64_t i = 0; i < master.count; ++i) {
          auto const parameter = static_cast<std::size_t>(master.parameter.on(at) + i);
          auto const value = static_cast<std::size_t>(master.master.on(at) + i);
          result = larger_or_nan(result, std::abs(static_cast<double>(rank.memory[parameter] - rank.memory[value])));
        }
      if (at.pp == stage_of_head(program_.plan)) {
        auto const address = static_cast<std::size_t>(rank.storage->persistent[loss_buffer]);
        result = larger_or_nan(result, std::abs(static_cast<double>(rank.memory[address]) - loss()));
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

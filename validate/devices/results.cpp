#include "validate/devices/results.hpp"

#include "interpreter/data.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace foreplan {
namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

double larger_or_nan(double a, double b) { return a >= b || std::isnan(a) ? a : b; }

// Where a value that a rank holds belongs.
struct Piece {
  HeldParameter held;
  Master master;
  MasterPart part;
};

// The same list on every process that asks for it.
std::vector<Piece> pieces_of(Program const& program, StageProgram const& stage, StageStorage const& layout,
                             Coordinate const& at) {
  std::vector<Piece> pieces;
  std::vector<Master> const masters = masters_of(program.plan, stage, layout);
  for (HeldParameter const& held : held_parameters(program, stage))
    for (Master const& master : masters)
      if (MasterPart const part = part_of(held, master, at); part.count > 0)
        pieces.push_back({held, master, part});
  return pieces;
}

// A rank's contribution: its loss (0 where it has none), the difference of its parameters from their masters, its masters.
std::vector<double> contribution(Program const& program, Runner const& runner) {
  RankMemory const& memory = runner.memory();
  memory.fetch_from_drive();
  Coordinate const at = runner.coordinate();
  StageProgram const& stage = program.stages[static_cast<std::size_t>(runner.coordinate().pp)];
  std::vector<double> values{runner.holds_loss() ? runner.loss() : 0, 0};
  for (Piece const& piece : pieces_of(program, stage, memory.layout, at)) {
    auto const value = [&](BoundOperand const& operand, std::int64_t i) {
      return load(memory.at(operand.on(at)), memory.type_of(*operand.tensor), piece.part.in_master + i);
    };
    for (std::int64_t i = 0; i < piece.part.count; ++i) {
      values.push_back(value(piece.master.master, i));
      values[1] = larger_or_nan(values[1], std::abs(values.back() - value(piece.master.parameter, i)));
    }
  }
  return values;
}

std::int64_t product(std::vector<std::int64_t> const& shape) {
  std::int64_t result = 1;
  for (std::int64_t size : shape)
    result *= size;
  return result;
}

// Enters a value; the difference from what another rank has entered.
double enter(std::vector<double>& values, std::int64_t position, double value) {
  double& place = values[static_cast<std::size_t>(position)];
  double const difference = std::isnan(place) ? 0 : std::abs(value - place);
  place = value;
  return std::isnan(value) ? nothing : difference;
}

class Assembly {
public:
  explicit Assembly(Program const& program) : program_(program) {
    for (StageProgram const& stage : program.stages)
      layouts_.push_back(lay_out(program, stage, Reuse::same_size));
  }

  void add(Rank rank, double const* values) {
    Coordinate const where = coordinate_of(program_.plan, rank);
    auto const stage = static_cast<std::size_t>(where.pp);
    if (where.pp == stage_of_head(program_.plan)) {
      differ(has_loss_ ? std::abs(values[0] - results_.reached.loss) : 0);
      results_.reached.loss = values[0];
      has_loss_ = true;
    }
    differ(values[1]);
    double const* value = values + 2;
    for (Piece const& piece : pieces_of(program_, program_.stages[stage], layouts_[stage], where)) {
      Parameter const& parameter = *piece.held.parameter;
      std::vector<double>& whole = results_.reached.weights[{piece.held.layer, parameter.name}];
      whole.resize(static_cast<std::size_t>(product(parameter.full_shape)), nothing);
      if (parameter.tied)
        tied_.resize(whole.size(), nothing);
      std::vector<std::int64_t> const positions = positions_in_full(parameter, where.tp);
      for (std::int64_t i = 0; i < piece.part.count; ++i, ++value) {
        std::int64_t const position = positions[static_cast<std::size_t>(piece.part.in_parameter + i)];
        differ(enter(whole, position, *value));
        if (parameter.tied)
          differ(enter(tied_, position, *value));
      }
    }
  }

  Results take() && { return std::move(results_); }

private:
  void differ(double difference) {
    results_.replica_difference = larger_or_nan(results_.replica_difference, difference);
  }

  Program const& program_;
  std::vector<StageStorage> layouts_;
  std::vector<double> tied_;
  bool has_loss_ = false;
  Results results_;
};

} // namespace

Results gather_results(Program const& program, Runner const& runner, MPI_Comm world) {
  std::vector<double> const own = contribution(program, runner);
  int self = 0;
  MPI_Comm_rank(world, &self);
  auto const ranks = static_cast<std::size_t>(program.plan.world_size());
  int const count = static_cast<int>(own.size());
  std::vector<int> counts(ranks), first(ranks);
  MPI_Gather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, 0, world);
  std::size_t total = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    first[rank] = static_cast<int>(total);
    total += static_cast<std::size_t>(counts[rank]);
  }
  std::vector<double> all(total);
  MPI_Gatherv(own.data(), count, MPI_DOUBLE, all.data(), counts.data(), first.data(), MPI_DOUBLE, 0, world);
  if (self != 0)
    return {};
  Assembly assembly(program);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    assembly.add(Rank(static_cast<std::int64_t>(rank)), all.data() + first[rank]);
  return std::move(assembly).take();
}

} // namespace foreplan

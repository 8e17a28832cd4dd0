// Executes the programs of all ranks in one process on real tensors, in any legal order: is a program the right training
// step? What no op has written is NaN, and so is what was released.
#pragma once

#include "interpreter/execution_graph.hpp"
#include "interpreter/held_parameters.hpp"
#include "interpreter/kernels.hpp"
#include "interpreter/storage.hpp"
#include "program/program.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace foreplan {

// The whole model's master weights by (layer, parameter), each in the order of its full shape: the same under every plan.
using Weights = std::map<std::pair<int, std::string>, std::vector<double>>;

template <class Scalar>
class Interpreter {
public:
  // Keeps a reference to the program. Throws std::runtime_error where a tensor exceeds its buffer.
  Interpreter(Program const& program, TrainingParameters const& training, Reuse reuse = Reuse::same_size);

  // Back to the model's initial weights, before step 1.
  void reset();

  // One training step on the next global batch. Throws std::runtime_error when it gets stuck.
  void step(Order const& order);

  // The first `count` of the orders in which to look for what a program forgot.
  [[nodiscard]] std::vector<Order> adversarial_orders(int count) const {
    return foreplan::adversarial_orders(program_, stages_, count);
  }

  // The mean loss over the global batch of the last step, as the first rank of the stage with the head holds it.
  [[nodiscard]] double loss() const;
  // The global norm of the gradients before clipping, as the optimizer saw it.
  [[nodiscard]] double gradient_norm() const { return gradient_norm_; }
  [[nodiscard]] Weights weights() const;
  // Largest difference between what ranks hold that should be the same: losses, masters of replicated (dp, tp) and tied
  // parameters, and updated parameters against their masters. 0 is the rule: the ranks do the same arithmetic. NaN when
  // something is NaN.
  [[nodiscard]] double replica_difference() const;
  [[nodiscard]] std::size_t node_count() const { return graph_.size(); } // instances, collectives counted once

private:
  struct RankState {
    Coordinate coordinate;
    StageStorage const* storage = nullptr;
    KernelContext context;
    std::vector<Scalar> memory;
    std::vector<Scalar> initial;
    std::vector<Range> undefined; // when a step begins
  };
  void initialise(RankState& rank);
  void prepare_step(RankState& rank);
  void run_node(std::size_t node);
  void run_instance(ExecutionGraph::Member member);
  void run_together(std::span<ExecutionGraph::Member const> members, Op const& op);
  void release(RankState& rank, BoundInstance const& instance);
  [[nodiscard]] View<Scalar> view(RankState& rank, BoundOperand const& operand) const;
  // A parameter's master values as the rank at `at` and those with which it shares them out hold them.
  [[nodiscard]] std::vector<double> master_of(HeldParameter const& held, Coordinate const& at) const;
  [[nodiscard]] RankState const& rank_state(Coordinate const& at) const;

  Program const& program_;
  TrainingParameters training_;
  std::vector<StageStorage> stages_;
  std::vector<std::vector<Master>> masters_;     // by stage
  std::vector<std::vector<HeldParameter>> held_; // by stage
  ExecutionGraph graph_;
  std::vector<RankState> ranks_;
  std::vector<Scalar> scratch_;
  std::vector<View<Scalar>> read_views_, write_views_;
  double gradient_norm_ = 0;
  int step_ = 0;
};

extern template class Interpreter<float>;
extern template class Interpreter<double>;

} // namespace foreplan

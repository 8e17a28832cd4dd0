// The semantics of every op kind (src/program/op_kinds.md) on real tensors of the host. All storage is one scalar type,
// whatever a tensor's dtype says: a cast is a copy, token ids and masks are whole numbers held in it.
#pragma once

#include "plan/process_groups.hpp"
#include "program/program.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace foreplan {

// A tensor of one rank: row-major, contiguous from `data`.
template <class Scalar>
struct View {
  Scalar* data = nullptr;
  Tensor const* tensor = nullptr;

  [[nodiscard]] std::int64_t elements() const { return tensor->elements(); }
  [[nodiscard]] std::int64_t rows() const { return tensor->shape.empty() ? 1 : tensor->shape[0]; }
  [[nodiscard]] std::int64_t columns() const { return rows() == 0 ? 0 : elements() / rows(); }
  [[nodiscard]] std::int64_t size(std::size_t dimension) const { return tensor->shape[dimension]; }
};

// What the optimizer and the data need beyond the program.
struct TrainingParameters {
  double learning_rate = 1e-2;
  double epsilon = 1e-8; // of Adam
  double beta1 = 0.9;
  double beta2 = 0.95;
  std::uint64_t seed = 1; // of tokens and initial weights
};

// Facts of the rank and of the step that an op may depend on.
struct KernelContext {
  Coordinate coordinate;
  double gradient_clip = 0; // global norm; 0: never
  TrainingParameters training;
  int step = 1; // 1-based
};

// Runs one op that is not communication. Reads and writes are positional, as in OpKind; a tensor that is read and
// written stands in both.
template <class Scalar>
void run_kernel(Op const& op, std::span<View<Scalar> const> reads, std::span<View<Scalar> const> writes,
                KernelContext const& context);

// Whether a collective of this operand takes the maximum, not the sum: it is a partial maximum along an axis of the group.
bool takes_maximum(Op const& op, Tensor const& tensor);

// Runs a collective: element i of reads and writes belongs to member i. Sums are taken in the order of the members.
// Throws std::runtime_error when the members' sizes do not fit each other.
template <class Scalar>
void run_collective(Op const& op, std::span<View<Scalar> const> reads, std::span<View<Scalar> const> writes,
                    std::vector<Scalar>& scratch);

extern template void run_kernel<float>(Op const&, std::span<View<float> const>, std::span<View<float> const>,
                                       KernelContext const&);
extern template void run_kernel<double>(Op const&, std::span<View<double> const>, std::span<View<double> const>,
                                        KernelContext const&);
extern template void run_collective<float>(Op const&, std::span<View<float> const>, std::span<View<float> const>,
                                           std::vector<float>&);
extern template void run_collective<double>(Op const&, std::span<View<double> const>, std::span<View<double> const>,
                                            std::vector<double>&);

} // namespace foreplan

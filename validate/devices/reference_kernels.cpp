#include "validate/devices/reference_kernels.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace foreplan {
namespace {

template <class Scalar>
std::vector<View<Scalar>> views_of(std::span<Operand const> operands) {
  std::vector<View<Scalar>> views;
  for (Operand const& operand : operands)
    views.push_back({operand.as<Scalar>(), operand.tensor});
  return views;
}

template <class Scalar>
void run_in_place(Op const& op, std::span<Operand const> reads, std::span<Operand const> writes,
                  KernelContext const& context) {
  run_kernel<Scalar>(op, views_of<Scalar>(reads), views_of<Scalar>(writes), context);
}

// fp32 copies by the address of what they copy: an operand that is read and written is one copy.
using Copies = std::map<void*, std::vector<float>>;

View<float> copy_of(Copies& copies, Operand const& operand) {
  std::vector<float>& copy = copies[operand.data];
  auto const known = static_cast<std::int64_t>(copy.size());
  copy.resize(static_cast<std::size_t>(std::max(known, operand.elements())));
  ElementType const type = element_type(Storage::as_planned, operand.tensor->dtype);
  for (std::int64_t i = known; i < operand.elements(); ++i)
    copy[static_cast<std::size_t>(i)] = static_cast<float>(load(operand.data, type, i));
  return {copy.data(), operand.tensor};
}

void run_on_copies(Op const& op, std::span<Operand const> reads, std::span<Operand const> writes,
                   KernelContext const& context) {
  Copies copies;
  for (std::span<Operand const> operands : {reads, writes})
    for (Operand const& operand : operands)
      copy_of(copies, operand);
  auto const views = [&](std::span<Operand const> operands) { // the copies no longer move
    std::vector<View<float>> result;
    for (Operand const& operand : operands)
      result.push_back(copy_of(copies, operand));
    return result;
  };
  run_kernel<float>(op, views(reads), views(writes), context);
  for (Operand const& operand : writes) {
    std::vector<float> const& copy = copies[operand.data];
    ElementType const type = element_type(Storage::as_planned, operand.tensor->dtype);
    for (std::int64_t i = 0; i < operand.elements(); ++i)
      store(operand.data, type, i, copy[static_cast<std::size_t>(i)]);
  }
}

} // namespace

void run_reference_kernel(Storage storage, Op const& op, std::span<Operand const> reads,
                          std::span<Operand const> writes, KernelContext const& context) {
  switch (storage) {
    case Storage::fp32: return run_in_place<float>(op, reads, writes, context);
    case Storage::fp64: return run_in_place<double>(op, reads, writes, context);
    case Storage::as_planned: return run_on_copies(op, reads, writes, context);
  }
}

} // namespace foreplan

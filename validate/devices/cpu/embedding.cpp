#include "validate/devices/cpu/kernels.hpp"
#include "validate/devices/cpu/parallel.hpp"

#include <algorithm>
#include <array>

namespace foreplan::cpu {
namespace {

// dtable[row_of(t)] += dy[t]. Each thread has a range of columns, so that tokens of one row do not race and are added in
// their order.
template <class RowOf>
void add_to_rows(Operand const& dy, Operand const& dtable, RowOf const& row_of) {
  std::int64_t const width = columns(dy);
  constexpr std::int64_t line = 32; // elements of a cache line, at least
  parallel_ranges(width, line, [&](std::int64_t first, std::int64_t last) {
    std::array<float, run_length> gradients, sums;
    for (std::int64_t t = 0; t < rows(dy); ++t) {
      std::int64_t const row = row_of(t);
      if (row < 0 || row >= rows(dtable))
        continue;
      for (std::int64_t begin = first; begin < last; begin += run_length) {
        std::int64_t const count = std::min(run_length, last - begin);
        float const* from = load(dy, t * width + begin, count, gradients.data());
        float const* before = load(dtable, row * width + begin, count, sums.data());
        float* to = target(dtable, row * width + begin, sums.data());
        for (std::int64_t i = 0; i < count; ++i)
          to[i] = before[i] + from[i];
        store(dtable, row * width + begin, count, to);
      }
    }
  });
}

} // namespace

void embedding_forward(Operands reads, Operands writes, KernelContext const& context) {
  Operand const& table = reads[1];
  Operand const& y = writes[0];
  auto const* ids = static_cast<std::int32_t const*>(reads[0].data);
  std::int64_t const first = first_of_shard(table, 0, context.coordinate);
  std::int64_t const bytes = columns(y) * size_of(dtype(y));
  parallel_ranges(rows(y), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      std::int64_t const row = ids[t] - first;
      auto* to = static_cast<char*>(y.data) + t * bytes;
      if (0 <= row && row < rows(table))
        std::copy_n(static_cast<char const*>(table.data) + row * bytes, bytes, to);
      else
        std::fill_n(to, bytes, char{0});
    }
  });
}

void embedding_backward(Operands reads, Operands writes, KernelContext const& context) {
  auto const* ids = static_cast<std::int32_t const*>(reads[0].data);
  std::int64_t const first = first_of_shard(writes[0], 0, context.coordinate);
  add_to_rows(reads[1], writes[0], [&](std::int64_t t) { return ids[t] - first; });
}

void add_positions(Op const& op, Operands reads, Operands writes, KernelContext const& context) {
  Operand const& x = reads[0];
  std::int64_t const width = columns(x);
  std::int64_t const first = first_of_shard(x, 0, context.coordinate);
  parallel_ranges(rows(x), 1, [&](std::int64_t begin, std::int64_t end) {
    std::array<float, run_length> a, b, sum;
    for (std::int64_t t = begin; t < end; ++t)
      for (std::int64_t at = 0; at < width; at += run_length) {
        std::int64_t const count = std::min(run_length, width - at);
        float const* from = load(x, t * width + at, count, a.data());
        float const* row = load(reads[1], (first + t) % op.sequence_length * width + at, count, b.data());
        float* to = target(writes[0], t * width + at, sum.data());
        for (std::int64_t i = 0; i < count; ++i)
          to[i] = from[i] + row[i];
        store(writes[0], t * width + at, count, to);
      }
  });
}

void position_gradient(Op const& op, Operands reads, Operands writes, KernelContext const& context) {
  std::int64_t const first = first_of_shard(reads[0], 0, context.coordinate);
  add_to_rows(reads[0], writes[0], [&](std::int64_t t) { return (first + t) % op.sequence_length; });
}

} // namespace foreplan::cpu

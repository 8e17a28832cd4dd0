#include "timing/kernels/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace foreplan {

namespace {

// Octaves between a row and the shape.
double distance(ProductResidual const& row, GemmShape const& shape) {
  double const m = std::log2(row.m / static_cast<double>(shape.m));
  double const n = std::log2(row.n / static_cast<double>(shape.n));
  double const k = std::log2(row.k / static_cast<double>(shape.k));
  return std::sqrt(m * m + n * n + k * k) + (row.accumulate == shape.accumulate ? 0 : 1);
}

std::string nearest_text(std::vector<ProductResidual> const& residuals, GemmShape const& shape) {
  constexpr std::ptrdiff_t shown = 3;
  std::vector<ProductResidual const*> rows;
  for (ProductResidual const& row : residuals)
    if (correction_table(row.format) == correction_table(shape.format) && correction_table(row.format) >= 0)
      rows.push_back(&row);
  std::ranges::stable_sort(rows, {}, [&](auto const* row) { return distance(*row, shape); });
  rows.resize(static_cast<std::size_t>(std::min(shown, std::ssize(rows))));
  std::string text;
  for (ProductResidual const* row : rows)
    text += fmt::format("{}{} x {} x {}: measured {:+.1f} % of the formula", text.empty() ? "" : "; ", row->m, row->n,
                        row->k, 100 * std::expm1(row->log_ratio));
  return text.empty() ? "no product of this format" : text;
}

} // namespace

std::string explain_product(KernelMachine const& machine, std::vector<ProductResidual> const& residuals,
                            GemmShape const& shape) {
  GemmLimits const limits = gemm_limits(machine, shape);
  double const modelled = modelled_gemm_seconds(machine, shape);
  return fmt::format(
      "{} x {} x {} {}: memory {:.4g} us, power {:.4g} us, tiles {:.4g} us; with the fixed times {:.4g} us\n"
      "nearest {}\n"
      "correction {:+.1f} %: {:.4g} us\n",
      shape.m, shape.n, shape.k, to_string(shape.format), limits.memory * 1e6, limits.power * 1e6, limits.tiles * 1e6,
      modelled * 1e6, nearest_text(residuals, shape), 100 * (gemm_seconds(machine, shape) / modelled - 1),
      gemm_seconds(machine, shape) * 1e6);
}

} // namespace foreplan

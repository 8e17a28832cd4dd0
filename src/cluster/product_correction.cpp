#include "cluster/product_correction.hpp"

#include "io/json_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace foreplan {

std::string_view to_string(NumberFormat format) {
  switch (format) {
    case NumberFormat::fp32: return "fp32";
    case NumberFormat::tf32: return "tf32";
    case NumberFormat::bf16: return "bf16";
    case NumberFormat::fp8: return "fp8";
    case NumberFormat::fp8_row: return "fp8_row";
    case NumberFormat::fp8_block: return "fp8_block";
    case NumberFormat::mxfp8: return "mxfp8";
    case NumberFormat::nvfp4: return "nvfp4";
    case NumberFormat::int8: return "int8";
  }
  return "?";
}

int correction_table(NumberFormat format) {
  switch (format) {
    case NumberFormat::fp32:
    case NumberFormat::tf32: return -1;
    case NumberFormat::bf16: return 0;
    case NumberFormat::fp8:
    case NumberFormat::fp8_row: return 1;
    case NumberFormat::fp8_block:
    case NumberFormat::mxfp8: return 2;
    case NumberFormat::nvfp4: return 3;
    case NumberFormat::int8: return 4;
  }
  return -1;
}

namespace {

using Correction = ProductCorrection;

struct Axis {
  int first;
  int count;
  std::size_t stride;
};
constexpr std::array<Axis, 3> axes{{{Correction::first_octave_m, Correction::octaves_m,
                                     static_cast<std::size_t>(Correction::octaves* Correction::octaves)},
                                    {Correction::first_octave, Correction::octaves, Correction::octaves},
                                    {Correction::first_octave, Correction::octaves, 1}}};

constexpr double width = 1;                // octaves, of the bell
constexpr int reach = 3;                   // octaves beyond which it counts nothing
constexpr double doubt = 1;                // weight of "no correction", in rows
constexpr double most = 0.3;               // of |log_ratio|
constexpr double other_accumulation = 0.1; // weight of rows that add to their output for such that do not, and back

struct Sums {
  std::vector<double> weight = std::vector<double>(Correction::size);
  std::vector<double> sum = std::vector<double>(Correction::size);
};

// Weights of the axis's nodes for a row at `x` octaves.
std::array<double, Correction::octaves_m> bell(Axis const& axis, double x) {
  std::array<double, Correction::octaves_m> weights{};
  for (int i = 0; i < axis.count; ++i) {
    double const distance = (axis.first + i - x) / width;
    weights[static_cast<std::size_t>(i)] = std::abs(axis.first + i - x) > reach ? 0
                                                                                : std::exp(-0.5 * distance * distance);
  }
  return weights;
}

void add(Sums& sums, ProductResidual const& row, double weight) {
  auto const along_m = bell(axes[0], std::log2(row.m));
  auto const along_n = bell(axes[1], std::log2(row.n));
  auto const along_k = bell(axes[2], std::log2(row.k));
  double const value = std::clamp(row.log_ratio, -most, most);
  std::size_t node = 0;
  for (std::size_t i = 0; i < Correction::octaves_m; ++i)
    for (std::size_t j = 0; j < Correction::octaves; ++j)
      for (std::size_t l = 0; l < Correction::octaves; ++l, ++node) {
        double const near = weight * along_m[i] * along_n[j] * along_k[l];
        sums.weight[node] += near;
        sums.sum[node] += near * value;
      }
}

double log_seconds(ProductGrowth const& growth, double m, double n, double k) {
  constexpr double tile = 128;
  double const memory = (growth.input_bytes * (m * k + n * k) + 2 * m * n) / growth.memory_rate;
  double const products = 2 * m * n * k / growth.rate;
  double const one_tile = 2 * tile * tile * (k / growth.parts + growth.epilogue) / growth.tile_rate;
  return std::log(
      growth.fixed + k * growth.step +
      std::cbrt(memory * memory * memory + products * products * products + one_tile * one_tile * one_tile));
}

// How far the correction may fall from a node to the next along an axis: half of what the time grows.
std::array<std::vector<double>, 3> allowed_falls(ProductGrowth const& growth) {
  std::vector<double> logs(Correction::size);
  std::size_t node = 0;
  for (int i = 0; i < axes[0].count; ++i)
    for (int j = 0; j < axes[1].count; ++j)
      for (int l = 0; l < axes[2].count; ++l)
        logs[node++] = log_seconds(growth, std::exp2(axes[0].first + i), std::exp2(axes[1].first + j),
                                   std::exp2(axes[2].first + l));
  std::array<std::vector<double>, 3> falls;
  for (std::size_t a = 0; a < 3; ++a) {
    falls[a].assign(Correction::size, 0);
    Axis const axis = axes[a];
    for (std::size_t at = 0; at < Correction::size; ++at) {
      auto const position = static_cast<int>(at / axis.stride) % axis.count;
      if (position + 1 < axis.count)
        falls[a][at] = 0.5 * (logs[at + axis.stride] - logs[at]);
    }
  }
  return falls;
}

// The mean of the least function above and the greatest below that fall nowhere more than allowed: neither does it.
void limit_falls(std::vector<double>& values, std::array<std::vector<double>, 3> const& falls) {
  std::vector<double> above = values, below = values;
  for (std::size_t a = 0; a < 3; ++a) {
    Axis const axis = axes[a];
    auto position = [&](std::size_t at) { return static_cast<int>(at / axis.stride) % axis.count; };
    for (std::size_t at = 0; at < values.size(); ++at)
      if (position(at) > 0)
        above[at] = std::max(above[at], above[at - axis.stride] - falls[a][at - axis.stride]);
    for (std::size_t at = values.size(); at-- > 0;)
      if (position(at) + 1 < axis.count)
        below[at] = std::min(below[at], below[at + axis.stride] + falls[a][at]);
  }
  for (std::size_t at = 0; at < values.size(); ++at)
    values[at] = (above[at] + below[at]) / 2;
}

std::vector<float> table_of(std::span<ProductResidual const> rows, int format, bool accumulate,
                            ProductGrowth const& growth) {
  Sums sums;
  bool any = false;
  for (ProductResidual const& row : rows) {
    if (correction_table(row.format) != format)
      continue;
    any = true;
    add(sums, row, row.weight * (row.accumulate == accumulate ? 1 : other_accumulation));
  }
  if (!any)
    return {};
  std::vector<double> values(Correction::size);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = sums.sum[i] / (sums.weight[i] + doubt);
  limit_falls(values, allowed_falls(growth));
  return {values.begin(), values.end()};
}

// In ProductCorrection::tables.
std::size_t table_index(int format, bool accumulate) {
  return static_cast<std::size_t>(format) + (accumulate ? std::size_t{Correction::formats} : 0);
}

} // namespace

ProductCorrection product_correction(std::span<ProductResidual const> rows,
                                     std::array<ProductGrowth, ProductCorrection::formats> const& growth) {
  ProductCorrection correction;
  for (int format = 0; format < Correction::formats; ++format)
    for (bool const accumulate : {false, true})
      correction.tables[table_index(format, accumulate)] = table_of(rows, format, accumulate,
                                                                    growth[static_cast<std::size_t>(format)]);
  return correction;
}

double log_correction(ProductCorrection const& correction, NumberFormat format, bool accumulate, double m, double n,
                      double k) {
  int const index = correction_table(format);
  if (index < 0)
    return 0;
  std::vector<float> const& table = correction.tables[table_index(index, accumulate)];
  if (table.empty())
    return 0;
  std::array<double, 3> const sizes{m, n, k};
  std::array<double, 3> part{};
  std::size_t corner = 0;
  for (std::size_t a = 0; a < 3; ++a) {
    double const position = std::clamp(std::log2(sizes[a]) - axes[a].first, 0.0,
                                       static_cast<double>(axes[a].count - 1));
    auto const below = std::min(static_cast<std::size_t>(position), static_cast<std::size_t>(axes[a].count - 2));
    part[a] = position - static_cast<double>(below);
    corner += below * axes[a].stride;
  }
  auto const line = [&](std::size_t at) {
    return static_cast<double>(table[at]) * (1 - part[2]) + static_cast<double>(table[at + 1]) * part[2];
  };
  auto const plane = [&](std::size_t at) { return line(at) * (1 - part[1]) + line(at + axes[1].stride) * part[1]; };
  return plane(corner) * (1 - part[0]) + plane(corner + axes[0].stride) * part[0];
}

namespace {

NumberFormat read_format(JsonReader const& reader) {
  return reader.choice<NumberFormat>({{"bf16", NumberFormat::bf16},
                                      {"fp8", NumberFormat::fp8},
                                      {"fp8_row", NumberFormat::fp8_row},
                                      {"fp8_block", NumberFormat::fp8_block},
                                      {"mxfp8", NumberFormat::mxfp8},
                                      {"nvfp4", NumberFormat::nvfp4},
                                      {"int8", NumberFormat::int8}});
}

} // namespace

std::vector<ProductResidual> read_product_residuals(JsonReader const& reader) {
  constexpr double most_size = 1e9;
  std::vector<ProductResidual> rows;
  for (JsonReader const& entry : reader.elements()) {
    entry.expect_keys({"format", "accumulate", "weight", "n", "k", "m", "log_ratio"});
    ProductResidual row;
    row.format = read_format(entry["format"]);
    row.accumulate = entry["accumulate"].boolean();
    row.weight = entry["weight"].number(0, 1);
    row.n = entry["n"].number(1, most_size);
    row.k = entry["k"].number(1, most_size);
    std::vector<JsonReader> const sizes = entry["m"].elements();
    std::vector<JsonReader> const ratios = entry["log_ratio"].elements();
    if (sizes.size() != ratios.size())
      entry["log_ratio"].fail(fmt::format("must have as many numbers as m, {}", sizes.size()));
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      row.m = sizes[i].number(1, most_size);
      row.log_ratio = ratios[i].number(-most, most);
      rows.push_back(row);
    }
  }
  return rows;
}

} // namespace foreplan

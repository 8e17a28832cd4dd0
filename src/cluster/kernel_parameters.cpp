#include "cluster/kernel_parameters.hpp"

#include "cluster/cluster.hpp"
#include "io/json_reader.hpp"
#include "units/quantity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace foreplan {

// Priors: notes of the fits over A100 to B200 (GEMM and attention kernels); widths say how far chips differ.
std::array<KernelParameter, kernel::count> const& kernel_parameters() {
  constexpr double us = 1e-6;
  static constexpr std::array<KernelParameter, kernel::count> all{{
      {"memory_rate", "", "long streams, of the memory bandwidth", 0.85, 0.2, 0.3, 1.1},
      {"fixed", "us", "device time of a kernel beyond its work", 2.5 * us, 0.7, 0.5 * us, 40 * us},
      {"quantize_fixed", "us", "fixed time of a kernel that casts inputs to 8 or 4 bits", 3.2 * us, 0.5, 0.3 * us,
       10 * us},
      {"epilogue", "", "begin and end of an output tile, as steps of k at the 16-bit rate", 250, 0.7, 1, 900},
      {"tile_load", "", "loading of a tile: multiply-adds that an input element costs", 5, 0.7, 0.1, 90},
      {"matrix_16bit", "", "bf16, fp16 and tf32 products, of their peak", 0.75, 0.3, 0.2, 1.4},
      {"matrix_fp8", "", "fp8 products with one scale a tensor or row, of their peak", 0.75, 0.3, 0.2, 1.4},
      {"matrix_block_scaled", "", "fp8 products with scales of blocks, of their peak", 0.75, 0.3, 0.2, 1.4},
      {"matrix_fp4", "", "fp4 products, of four times the 16-bit peak", 0.55, 0.3, 0.2, 1.4},
      {"matrix_int8", "", "int8 products, of their peak", 0.75, 0.3, 0.2, 1.4},
      {"matrix_fp32", "", "fp32 products, of their peak", 0.75, 0.3, 0.2, 1.4},
      {"attention_matrix", "", "products of fused attention, of the 16-bit peak", 0.7, 0.4, 0.2, 2},
      {"attention_softmax", "", "softmax of a score, as channels of a head at the 16-bit peak", 100, 0.5, 10, 800},
      {"attention_overhead", "", "begin and end of a block of queries, as keys", 400, 1, 1, 3000},
  }};
  return all;
}

KernelValues kernel_priors() {
  KernelValues values{};
  std::ranges::transform(kernel_parameters(), values.begin(), &KernelParameter::prior);
  return values;
}

std::array<std::string_view, kernel::class_count> const& kernel_class_names() {
  static constexpr std::array<std::string_view, kernel::class_count> names{
      "gemm_16bit", "gemm_8bit", "gemm_4bit", "attention_forward", "attention_backward", "memory_bound"};
  return names;
}

namespace {

JsonReader value_of(JsonReader const& entry, std::vector<Source>& sources) {
  entry.expect_keys({"value", "kind", "source", "prior", "rows"});
  Evidence const kind = entry["kind"].choice<Evidence>(
      {{"datasheet", Evidence::datasheet}, {"fitted", Evidence::fitted}, {"measured", Evidence::measured}});
  sources.push_back({entry.path(), kind, entry["source"].text(), entry["value"].as_it_stands()});
  return entry["value"];
}

// A value or prior within the parameter's range.
double read_number(JsonReader const& value, KernelParameter const& parameter) {
  if (parameter.unit.empty())
    return value.number(parameter.lowest, parameter.highest);
  double const seconds = value.quantity<Seconds>().value();
  if (seconds < parameter.lowest || seconds > parameter.highest)
    value.fail(fmt::format("must be from {:g} us to {:g} us", parameter.lowest * 1e6, parameter.highest * 1e6));
  return seconds;
}

void read_parameter(JsonReader const& reader, std::size_t index, KernelParameters& parameters,
                    std::vector<Source>& sources) {
  KernelParameter const& parameter = kernel_parameters()[index];
  auto const entry = reader.find(parameter.name);
  if (!entry) {
    sources.push_back({fmt::format("{}.{}", reader.path(), parameter.name), Evidence::datasheet, "prior",
                       fmt::format("{:g}", parameter.prior)});
    return;
  }
  parameters.values[index] = read_number(value_of(*entry, sources), parameter);
  if (auto const prior = entry->find("prior"))
    parameters.priors[index] = read_number(*prior, parameter);
  if (auto const rows = entry->find("rows"))
    parameters.rows[index] = static_cast<int>(rows->integer(0, 1 << 30));
}

} // namespace

kernel::Parameter efficiency_of(NumberFormat format) {
  switch (format) {
    case NumberFormat::fp32: return kernel::matrix_fp32;
    case NumberFormat::tf32:
    case NumberFormat::bf16: return kernel::matrix_16bit;
    case NumberFormat::fp8:
    case NumberFormat::fp8_row: return kernel::matrix_fp8;
    case NumberFormat::fp8_block:
    case NumberFormat::mxfp8: return kernel::matrix_block_scaled;
    case NumberFormat::nvfp4: return kernel::matrix_fp4;
    case NumberFormat::int8: return kernel::matrix_int8;
  }
  return kernel::matrix_16bit;
}

namespace {

double given_or(FlopsPerSecond given, double otherwise) { return given.value() > 0 ? given.value() : otherwise; }

} // namespace

double peak_rate(Chip const& chip, NumberFormat format) {
  double const peak = chip.bf16_peak.value();
  switch (format) {
    case NumberFormat::fp32: return chip.fp32_peak.value();
    case NumberFormat::tf32: return given_or(chip.tf32_peak, peak / 2);
    case NumberFormat::bf16: return peak;
    case NumberFormat::fp8:
    case NumberFormat::fp8_row:
    case NumberFormat::fp8_block:
    case NumberFormat::mxfp8: return given_or(chip.fp8_peak, 2 * peak);
    case NumberFormat::nvfp4: return 4 * peak;
    case NumberFormat::int8: return given_or(chip.int8_peak, 2 * peak);
  }
  return peak;
}

double bytes_of(NumberFormat format) {
  switch (format) {
    case NumberFormat::fp32:
    case NumberFormat::tf32: return 4;
    case NumberFormat::bf16: return 2;
    case NumberFormat::nvfp4: return 0.5 + 1.0 / 16;
    case NumberFormat::mxfp8: return 1 + 1.0 / 32;
    default: return 1;
  }
}

bool can_split(NumberFormat format) {
  return format != NumberFormat::fp8_block && format != NumberFormat::mxfp8 && format != NumberFormat::nvfp4;
}

ProductCorrection product_correction(Chip const& chip, KernelParameters const& parameters,
                                     std::span<ProductResidual const> rows) {
  constexpr std::array<NumberFormat, ProductCorrection::formats> formats{
      NumberFormat::bf16, NumberFormat::fp8, NumberFormat::fp8_block, NumberFormat::nvfp4, NumberFormat::int8};
  std::array<ProductGrowth, ProductCorrection::formats> growth;
  for (std::size_t i = 0; i < formats.size(); ++i) {
    double const peak = peak_rate(chip, formats[i]);
    double const rate = peak * parameters.values[efficiency_of(formats[i])] * parameters.clock_under_load;
    growth[i] = {.fixed = parameters.values[kernel::fixed],
                 .memory_rate = chip.memory_bandwidth.value() * parameters.values[kernel::memory_rate],
                 .rate = rate,
                 .tile_rate = rate / chip.multiprocessors,
                 .epilogue = parameters.values[kernel::epilogue] * peak / chip.bf16_peak.value(),
                 .step = step_latency,
                 .parts = can_split(formats[i]) ? split_parts : 1.0,
                 .input_bytes = bytes_of(formats[i])};
  }
  return product_correction(rows, growth);
}

bool is_moved(KernelParameters const& parameters, std::size_t parameter) {
  constexpr double rounding = 1e-3; // of what the file holds
  double const prior = parameters.priors[parameter];
  return parameters.rows[parameter] > 0 || std::abs(parameters.values[parameter] - prior) > rounding * prior;
}

KernelParameters read_kernel_parameters(JsonReader const& reader, Chip const& chip, std::vector<Source>& sources) {
  reader.expect_keys({"clock_under_load", "band", "residuals", "memory_rate", "fixed", "quantize_fixed", "epilogue",
                      "tile_load", "matrix_16bit", "matrix_fp8", "matrix_block_scaled", "matrix_fp4", "matrix_int8",
                      "matrix_fp32", "attention_matrix", "attention_softmax", "attention_overhead"});
  KernelParameters parameters;
  for (std::size_t i = 0; i < kernel::count; ++i)
    read_parameter(reader, i, parameters, sources);
  constexpr double slowest_clock = 0.1;
  if (auto const clock = reader.find("clock_under_load"))
    parameters.clock_under_load = value_of(*clock, sources).number(slowest_clock, 1);
  if (auto const band = reader.find("band")) {
    band->expect_keys(
        {"gemm_16bit", "gemm_8bit", "gemm_4bit", "attention_forward", "attention_backward", "memory_bound"});
    for (std::size_t i = 0; i < kernel::class_count; ++i)
      if (auto const entry = band->find(kernel_class_names()[i]))
        parameters.band[i] = value_of(*entry, sources).number(0, 10);
  }
  if (auto const residuals = reader.find("residuals"))
    parameters.residuals = read_product_residuals(*residuals);
  parameters.correction = product_correction(chip, parameters, parameters.residuals);
  return parameters;
}

} // namespace foreplan

#include "validate/calibrate/kernels_points.hpp"

#include "io/input_error.hpp"
#include "io/suggestion.hpp"
#include "validate/calibrate/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

namespace foreplan {

namespace {

std::int64_t whole(CsvRow const& row, std::string_view column) {
  constexpr double most = 1e12;
  double const value = row.required(column);
  if (value != std::floor(value) || value > most)
    row.fail(column, "must be a whole number from 1 to 1e12");
  return static_cast<std::int64_t>(value);
}

std::int64_t whole_or(CsvRow const& row, std::string_view column, std::int64_t otherwise) {
  return row.number(column) ? whole(row, column) : otherwise;
}

// Repositories and organisations, without the commit and the path behind them; rows without a source are the user's own.
std::string machine_of(std::string const& source) {
  return source.empty() ? "own" : source.substr(0, source.find_first_of("@ "));
}

std::optional<NumberFormat> format_of(CsvRow const& row) {
  std::string const& dtype = row.text("dtype");
  bool const blocks = row.text_or_empty("library") == "DeepGEMM"; // has no other scaling
  if (dtype == "bf16" || dtype == "fp16")
    return NumberFormat::bf16;
  if (dtype == "fp32")
    return NumberFormat::fp32;
  if (dtype == "tf32")
    return NumberFormat::tf32;
  if (dtype == "fp8" || dtype == "fp8_e4m3" || dtype == "fp8_e5m2")
    return blocks ? NumberFormat::fp8_block : NumberFormat::fp8;
  if (dtype == "fp8_row")
    return NumberFormat::fp8_row;
  if (dtype == "fp8_block")
    return NumberFormat::fp8_block;
  if (dtype == "mxfp8")
    return NumberFormat::mxfp8;
  if (dtype == "nvfp4")
    return NumberFormat::nvfp4;
  if (dtype.starts_with("int8"))
    return NumberFormat::int8;
  return std::nullopt;
}

kernel::Class class_of(NumberFormat format) {
  switch (format) {
    case NumberFormat::nvfp4: return kernel::gemm_4bit;
    case NumberFormat::fp32:
    case NumberFormat::tf32:
    case NumberFormat::bf16: return kernel::gemm_16bit;
    default: return kernel::gemm_8bit;
  }
}

std::int8_t output_bytes(CsvRow const& row) {
  std::string const type = row.text_or_empty("out_dtype");
  bool const single = type == "fp32" || type == "f32_r" || (type.empty() && row.text("dtype") == "fp32");
  return single ? 4 : 2;
}

// m, n, k of the table are rows, columns and depth of the product, for grouped products of the forward one.
std::optional<GemmShape> gemm_shape(CsvRow const& row) {
  auto const format = format_of(row);
  if (!format || !row.number("m") || !row.number("n") || !row.number("k"))
    return std::nullopt;
  GemmShape shape{.m = whole(row, "m"),
                  .n = whole(row, "n"),
                  .k = whole(row, "k"),
                  .groups = whole_or(row, "groups", 1),
                  .format = *format,
                  .output_bytes = output_bytes(row),
                  .accumulate = row.text_or_empty("accumulate") == "1"};
  std::string const& op = row.text("kernel_class");
  if (op == "grouped_gemm_dgrad")
    std::swap(shape.n, shape.k);
  if (op == "grouped_gemm_wgrad") // into fp32 gradients; 256 x 7168 x 2048 of them in 3.0 ms are written only
    shape = {.m = shape.n, .n = shape.k, .k = shape.m, .groups = shape.groups, .format = *format, .output_bytes = 4};
  return shape;
}

std::optional<AttentionShape> attention_shape(CsvRow const& row) {
  if (!row.number("seq") || !row.number("heads") || !row.number("head_dim"))
    return std::nullopt;
  std::int64_t const size = whole(row, "head_dim");
  bool const smaller_values = row.text_or_empty("shape").starts_with("dv=128");
  constexpr std::int64_t value_size = 128;
  return AttentionShape{.sequences = whole_or(row, "batch", 1),
                        .length = whole(row, "seq"),
                        .heads = whole(row, "heads"),
                        .kv_heads = whole_or(row, "kv_heads", whole(row, "heads")),
                        .key_size = size,
                        .value_size = smaller_values ? value_size : size,
                        .causal = row.text_or_empty("causal") != "0",
                        .fp8 = row.text("dtype").starts_with("fp8")};
}

// Of the whole square, two products.
double square_flops(AttentionShape const& shape) {
  auto const s = static_cast<double>(shape.length);
  return 2 * static_cast<double>(shape.sequences * shape.heads) * s * s *
         static_cast<double>(shape.key_size + shape.value_size);
}

// Of one byte of traffic; some sources count the bytes of a copy once.
std::optional<double> stream_seconds(CsvRow const& row) {
  bool const copies = row.text_or_empty("kernel").find("counted once") != std::string::npos;
  return row.number("GBps") ? std::optional(1e-9 / row.required("GBps") / (copies ? 2 : 1)) : std::nullopt;
}

// Seconds of the row: its time, or the flops over the rate that the source counted them for.
std::optional<double> seconds_of(CsvRow const& row, MeasuredKernel const& kernel) {
  if (auto const time = row.number("time_us"))
    return *time * 1e-6;
  if (std::holds_alternative<StreamShape>(kernel.shape))
    return stream_seconds(row);
  if (!row.number("tflops"))
    return std::nullopt;
  double const rate = row.required("tflops") * 1e12;
  if (auto const* gemm = std::get_if<GemmShape>(&kernel.shape))
    return flops_of(*gemm) / rate;
  auto const& attention = std::get<AttentionShape>(kernel.shape);
  bool const half = attention.causal && !row.text_or_empty("flop_convention").starts_with("full square");
  constexpr double backward = 2.5;
  return square_flops(attention) * (half ? 0.5 : 1) * (kernel.backward ? backward : 1) / rate;
}

bool set_shape(CsvRow const& row, MeasuredKernel& kernel) {
  if (kernel.op == "hbm_stream") {
    kernel.shape = StreamShape{};
    kernel.kind = kernel::memory_bound;
    return true;
  }
  if (kernel.op == "attention_fwd" || kernel.op == "attention_bwd") {
    auto const shape = attention_shape(row);
    kernel.backward = kernel.op == "attention_bwd";
    kernel.kind = kernel.backward ? kernel::attention_backward : kernel::attention_forward;
    if (shape)
      kernel.shape = *shape;
    return shape.has_value();
  }
  bool const product = kernel.op.starts_with("gemm") || kernel.op.starts_with("grouped_gemm");
  auto const shape = product && kernel.op != "gemm_best_shape" ? gemm_shape(row) : std::nullopt;
  if (!shape)
    return false;
  kernel.shape = *shape;
  kernel.kind = class_of(shape->format);
  return true;
}

// Where the source does not group, as the published table does: products with the same weights (of training passes,
// with the same three dimensions in any order), grouped products with the same weights, the same heads.
std::string family_of(MeasuredKernel const& kernel) {
  if (auto const* gemm = std::get_if<GemmShape>(&kernel.shape)) {
    if (kernel.op == "gemm")
      return fmt::format("gemm|n{}|k{}", gemm->n, gemm->k);
    std::array<std::string, 3> sizes{std::to_string(gemm->m), std::to_string(gemm->n), std::to_string(gemm->k)};
    std::ranges::sort(sizes);
    if (!kernel.op.starts_with("grouped"))
      return fmt::format("gemmtrain|{}", fmt::join(sizes, "|"));
    bool const weight_gradient = kernel.op == "grouped_gemm_wgrad";
    auto const [small, large] = std::minmax(gemm->n, weight_gradient ? gemm->m : gemm->k);
    return fmt::format("grouped|g{}|{}x{}", gemm->groups, small, large);
  }
  if (auto const* attention = std::get_if<AttentionShape>(&kernel.shape))
    return fmt::format("attn|h{}|kv{}|d{}", attention->heads, attention->kv_heads, attention->key_size);
  return fmt::format("{}|{}", kernel.op, kernel.chip);
}

} // namespace

KernelTable read_kernel_table(std::string const& path) {
  CsvTable const table = read_csv(path);
  KernelTable result;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    CsvRow const row(table, i);
    MeasuredKernel kernel;
    kernel.id = row.text_or_empty("row_id").empty() ? fmt::format("line {}", table.lines[i]) : row.text("row_id");
    kernel.chip = row.text("chip");
    kernel.op = row.text("kernel_class");
    kernel.dtype = row.text("dtype");
    kernel.machine = machine_of(row.text_or_empty("source"));
    kernel.trust = row.text_or_empty("trust").empty() ? "A" : row.text("trust");
    kernel.usable = row.text_or_empty("fit_ok") != "0";
    kernel.prepares = row.text_or_empty("library").starts_with("TRT-LLM");
    auto const seconds = set_shape(row, kernel) ? seconds_of(row, kernel) : std::nullopt;
    if (!seconds) {
      ++result.others;
      continue;
    }
    kernel.seconds = *seconds;
    kernel.family = row.text_or_empty("shape_family");
    if (kernel.family.empty())
      kernel.family = family_of(kernel);
    result.kernels.push_back(std::move(kernel));
  }
  return result;
}

std::string describe_shape(MeasuredKernel const& row) {
  if (auto const* gemm = std::get_if<GemmShape>(&row.shape))
    return fmt::format("{}m {} n {} k {}", gemm->groups > 1 ? fmt::format("{} x ", gemm->groups) : "", gemm->m, gemm->n,
                       gemm->k);
  if (auto const* attention = std::get_if<AttentionShape>(&row.shape))
    return fmt::format("b {} s {} heads {}/{} d {}", attention->sequences, attention->length, attention->heads,
                       attention->kv_heads, attention->key_size);
  return "stream";
}

std::string identity(MeasuredKernel const& row) {
  return fmt::format("{}|{}|{}|{}|{}|{:.9g}", row.chip, row.machine, row.op, row.dtype, describe_shape(row),
                     row.seconds);
}

double size_of_row(MeasuredKernel const& row) {
  if (auto const* gemm = std::get_if<GemmShape>(&row.shape))
    return static_cast<double>(gemm->m);
  if (auto const* attention = std::get_if<AttentionShape>(&row.shape))
    return static_cast<double>(attention->length);
  return 0;
}

namespace {

std::vector<KnownChip> read_chips() {
  constexpr double tera = 1e12;
  constexpr double giga = 1e9;
  CsvTable const table = read_csv(FOREPLAN_PUBLISHED "/chips.csv");
  std::vector<KnownChip> chips;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    CsvRow const row(table, i);
    auto peak = [&](std::string_view column) { return FlopsPerSecond(row.number(column).value_or(0) * tera); };
    KnownChip known{.name = row.text("chip"),
                    .profile_chip = row.text("profile_chip"),
                    .chip = {},
                    .clock_under_load = row.required("clock_under_load"),
                    .matrix_prior = row.number("matrix_prior").value_or(0),
                    .source = row.text("source")};
    known.chip.name = known.profile_chip;
    known.chip.bf16_peak = peak("bf16_TFLOPs");
    known.chip.fp32_peak = peak("fp32_TFLOPs");
    known.chip.tf32_peak = peak("tf32_TFLOPs");
    known.chip.fp8_peak = peak("fp8_TFLOPs");
    known.chip.int8_peak = peak("int8_TFLOPs");
    known.chip.memory_bandwidth = BytesPerSecond(row.required("memory_GBps") * giga);
    known.chip.multiprocessors = static_cast<int>(row.required("multiprocessors"));
    chips.push_back(std::move(known));
  }
  return chips;
}

} // namespace

std::vector<KnownChip> const& known_chips() {
  static std::vector<KnownChip> const chips = read_chips();
  return chips;
}

bool is_known_chip(std::string_view name) {
  return std::ranges::find(known_chips(), name, &KnownChip::name) != known_chips().end();
}

KnownChip const& known_chip(std::string_view name) {
  std::vector<std::string_view> names;
  for (KnownChip const& chip : known_chips()) {
    if (chip.name == name)
      return chip;
    names.emplace_back(chip.name);
  }
  throw InputError(fmt::format("chip {}: is unknown; {}", name, suggestion(std::string(name), names)));
}

} // namespace foreplan

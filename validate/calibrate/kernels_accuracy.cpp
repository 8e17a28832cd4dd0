#include "validate/calibrate/kernels_accuracy.hpp"

#include "io/input_error.hpp"
#include "report/table.hpp"
#include "validate/calibrate/kernels_profile.hpp"
#include "validate/calibrate/profile_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

namespace foreplan {

namespace {

constexpr std::string_view all = "all";
constexpr std::size_t enough = 100; // rows of a chip that counts among all

double log_ratio(JudgedKernel const& judged) { return std::log(judged.predicted / judged.row.seconds); }

std::string why_not(MeasuredKernel const& row) {
  if (!row.usable)
    return "fit_ok 0";
  return row.trust == "C" ? "trust C" : "";
}

std::string size_band(MeasuredKernel const& row) {
  double const size = size_of_row(row);
  if (std::holds_alternative<AttentionShape>(row.shape))
    return size < 2048 ? "s < 2048" : size < 8192 ? "s 2048-8191" : "s >= 8192";
  if (std::holds_alternative<StreamShape>(row.shape))
    return std::string(all);
  if (size < 256)
    return size < 64 ? "m < 64" : "m 64-255";
  return size < 1024 ? "m 256-1023" : size < 4096 ? "m 1024-4095" : "m >= 4096";
}

// Products of every pass together, beside each.
std::string class_of(MeasuredKernel const& row) {
  return std::holds_alternative<GemmShape>(row.shape) ? "products" : row.op;
}

KernelBand band_of(std::vector<JudgedKernel const*> rows, std::string chip, std::string op, std::string dtype,
                   std::string size) {
  constexpr std::ptrdiff_t shown = 5;
  std::vector<double> ratios;
  for (JudgedKernel const* row : rows)
    ratios.push_back(log_ratio(*row));
  std::ranges::stable_sort(rows, std::greater{}, [](auto const* row) { return std::abs(log_ratio(*row)); });
  rows.resize(static_cast<std::size_t>(std::min(shown, std::ssize(rows))));
  return {std::move(chip), std::move(op), std::move(dtype), std::move(size), summarise(ratios), std::move(rows)};
}

using Rows = std::vector<JudgedKernel const*>;

void add_bands(std::vector<KernelBand>& bands, Rows const& rows, std::string const& chip) {
  std::map<std::pair<std::string, std::string>, Rows> groups; // operation, number format
  for (JudgedKernel const* row : rows) {
    groups[{class_of(row->row), row->row.dtype}].push_back(row);
    if (class_of(row->row) != row->row.op)
      groups[{row->row.op, row->row.dtype}].push_back(row);
  }
  std::erase_if(groups, [&](auto const& group) { // one operation is the whole class
    auto const& [op, dtype] = group.first;
    auto const whole = groups.find({"products", dtype});
    return op != "products" && op.find("gemm") != std::string::npos && whole->second.size() == group.second.size();
  });
  for (auto const& [key, group] : groups) {
    auto const& [op, dtype] = key;
    bands.push_back(band_of(group, chip, op, dtype, std::string(all)));
    std::map<std::string, Rows> sizes;
    for (JudgedKernel const* row : group)
      sizes[size_band(row->row)].push_back(row);
    if (sizes.size() > 1 && (op == "products" || op.starts_with("attention")))
      for (auto const& [size, some] : sizes)
        bands.push_back(band_of(some, chip, op, dtype, size));
  }
}

std::string percent(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }
std::string signed_percent(double fraction) { return fmt::format("{:+.1f} %", 100 * fraction); }

std::string worst_text(KernelBand const& band) {
  JudgedKernel const& worst = *band.worst.front();
  return fmt::format("{} {} {}: {}", worst.row.id, band.chip == all ? worst.row.chip : "", describe_shape(worst.row),
                     signed_percent(worst.predicted / worst.row.seconds - 1));
}

std::string table_of(std::vector<KernelBand> const& bands, bool of_sizes) {
  std::vector<std::vector<std::string>> rows{
      {"chip", "operation", "format", "size", "rows", "median", "p90", "bias", "worst row"}};
  for (KernelBand const& band : bands)
    if (of_sizes == (band.size != all))
      rows.push_back({band.chip, band.op, band.dtype, band.size, std::to_string(band.errors.count),
                      percent(band.errors.median), percent(band.errors.p90), signed_percent(band.errors.bias),
                      worst_text(band)});
  return table(rows);
}

std::string row_json(JudgedKernel const& judged) {
  return fmt::format(R"({{"id": {}, "chip": {}, "operation": {}, "format": {}, "family": {}, "shape": {}, )"
                     R"("measured_s": {:.6g}, "predicted_s": {:.6g}}})",
                     json_quoted(judged.row.id), json_quoted(judged.row.chip), json_quoted(class_of(judged.row)),
                     json_quoted(judged.row.dtype), json_quoted(judged.row.family),
                     json_quoted(describe_shape(judged.row)), judged.row.seconds, judged.predicted);
}

std::string band_json(KernelBand const& band) {
  std::string worst;
  for (JudgedKernel const* row : band.worst)
    worst += (worst.empty() ? "" : ", ") + row_json(*row);
  return fmt::format(
      R"({{"chip": {}, "operation": {}, "format": {}, "size": {}, "rows": {}, "median": {:.5f}, "p90": {:.5f}, "bias": {:.5f}, "worst": [{}]}})",
      json_quoted(band.chip), json_quoted(band.op), json_quoted(band.dtype), json_quoted(band.size), band.errors.count,
      band.errors.median, band.errors.p90, band.errors.bias, worst);
}

} // namespace

std::string published_kernels_path() { return FOREPLAN_PUBLISHED "/kernels.csv"; }

KernelAccuracyReport kernel_accuracy(std::string const& data, std::string const& chip) {
  KernelAccuracyReport report;
  report.data = data.empty() ? published_kernels_path() : data;
  if (!chip.empty())
    (void)known_chip(chip);
  std::vector<MeasuredKernel> const published = read_kernel_table(published_kernels_path()).kernels;
  KernelTable const table = read_kernel_table(report.data);
  std::vector<MeasuredKernel> const& judged = table.kernels;
  if (table.others > 0)
    report.left_out["neither product, fused attention nor memory stream, or without shape or time"] = table.others;
  for (MeasuredKernel const& row : judged)
    if (!is_known_chip(row.chip))
      ++report.left_out[fmt::format("no data sheet of chip {} in published/chips.csv", row.chip)];
  for (KnownChip const& known : known_chips()) {
    if (!chip.empty() && known.name != chip)
      continue;
    std::set<std::string> seen;
    std::vector<MeasuredKernel const*> rows, mine;
    for (MeasuredKernel const& row : judged) {
      if (row.chip != known.name)
        continue;
      if (std::string const reason = why_not(row); !reason.empty()) {
        ++report.left_out[reason];
        continue;
      }
      mine.push_back(&row);
      rows.push_back(&row);
      seen.insert(identity(row));
    }
    if (mine.empty())
      continue;
    for (MeasuredKernel const& row : published)
      if (row.chip == known.name && serves_a_fit(row) && !seen.contains(identity(row)))
        rows.push_back(&row);
    KernelAccuracy const accuracy = leave_families_out(known, rows, mine);
    for (std::size_t i = 0; i < mine.size(); ++i)
      report.rows.push_back({*mine[i], mine[i]->seconds * std::exp(accuracy.log_ratios[i])});
    report.fits.emplace_back(known.name, accuracy.fit);
  }
  if (report.rows.empty())
    throw InputError(fmt::format("{}: has no row to judge; rows of matrix products, fused attention or memory streams "
                                 "with trust A or B and fit_ok 1 are",
                                 report.data));
  return report;
}

std::vector<KernelBand> kernel_bands(std::vector<JudgedKernel> const& rows) {
  std::map<std::string, Rows> chips;
  for (JudgedKernel const& row : rows)
    chips[row.row.chip].push_back(&row);
  Rows together;
  for (auto const& [chip, some] : chips)
    if (some.size() >= enough)
      together.insert(together.end(), some.begin(), some.end());
  std::vector<KernelBand> bands;
  if (!together.empty())
    add_bands(bands, together, std::string(all));
  for (auto const& [chip, some] : chips)
    add_bands(bands, some, chip);
  return bands;
}

std::string kernel_accuracy_text(KernelAccuracyReport const& report) {
  std::vector<KernelBand> const bands = kernel_bands(report.rows);
  std::string text = fmt::format("{} measured kernels of {}, each predicted by a fit without its family of shapes.\n"
                                 "Error: |predicted / measured - 1|. \"all\" chips: those with at least {} rows. "
                                 "\"products\": all passes together.\n\n",
                                 report.rows.size(), report.data, enough);
  text += table_of(bands, false) + "\nBy size (m: rows of a product; s: tokens of a sequence)\n\n" +
          table_of(bands, true);
  for (auto const& [reason, count] : report.left_out)
    text += fmt::format("\nNot judged: {} rows, {}.", count, reason);
  text += "\n\nParameters, fitted to all rows\n";
  for (auto const& [chip, fit] : report.fits)
    text += fmt::format("\n{}\n{}", chip, kernel_parameter_table(fit));
  return text;
}

std::string kernel_accuracy_json(KernelAccuracyReport const& report) {
  std::string bands, rows;
  for (KernelBand const& band : kernel_bands(report.rows))
    bands += (bands.empty() ? "\n    " : ",\n    ") + band_json(band);
  for (JudgedKernel const& row : report.rows)
    rows += (rows.empty() ? "\n    " : ",\n    ") + row_json(row);
  std::string left_out;
  for (auto const& [reason, count] : report.left_out)
    left_out += fmt::format("{}{}: {}", left_out.empty() ? "" : ", ", json_quoted(reason), count);
  return fmt::format("{{\n  \"format\": \"foreplan accuracy 1\",\n  \"what\": \"kernels\",\n  \"data\": {},\n"
                     "  \"not_judged\": {{{}}},\n  \"bands\": [{}\n  ],\n  \"rows\": [{}\n  ]\n}}\n",
                     json_quoted(report.data), left_out, bands, rows);
}

} // namespace foreplan

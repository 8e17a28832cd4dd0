#include "validate/calibrate/kernels_profile.hpp"

#include "report/table.hpp"
#include "validate/calibrate/kernels_accuracy.hpp"
#include "validate/calibrate/profile_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

namespace foreplan {

namespace {

std::string with_unit(KernelParameter const& parameter, double value) {
  return parameter.unit == "us" ? fmt::format("{:.3g} us", value * 1e6) : fmt::format("{:.4g}", value);
}

std::string value_json(KernelParameter const& parameter, double value) {
  return parameter.unit.empty() ? with_unit(parameter, value) : json_quoted(with_unit(parameter, value));
}

std::string entry(std::string_view key, std::string const& value, std::string_view kind, std::string const& source) {
  return fmt::format("    {}: {{\"value\": {}, \"kind\": \"{}\",\n      \"source\": {}}}", json_quoted(key), value,
                     kind, json_quoted(source));
}

// The rows leave less than two thirds of the prior's width.
bool is_known(FitResult const& result, std::size_t parameter) {
  constexpr double known = 0.67;
  return result.rows[parameter] > 0 && result.spread[parameter] < known * kernel_parameters()[parameter].width;
}

std::string rows_text(std::vector<MeasuredKernel const*> const& rows) {
  std::map<std::string, int> machines;
  for (MeasuredKernel const* row : rows)
    ++machines[row->machine];
  std::string text;
  for (auto const& [machine, count] : machines)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, machine);
  return text;
}

std::string join(std::vector<std::string> const& entries) {
  std::string text;
  for (std::string const& one : entries)
    text += (text.empty() ? "" : ",\n") + one;
  return text;
}

// Products with the same weights in one entry.
std::string residuals_json(std::vector<ProductResidual> const& residuals) {
  using Key = std::tuple<NumberFormat, bool, double, double, double>; // format, accumulate, weight, n, k
  std::map<Key, std::map<double, std::vector<double>>> entries;       // by m: repeats
  for (ProductResidual const& row : residuals)
    entries[{row.format, row.accumulate, row.weight, row.n, row.k}][row.m].push_back(row.log_ratio);
  std::vector<std::string> lines;
  for (auto const& [key, rows] : entries) {
    auto const& [format, accumulate, weight, n, k] = key;
    std::vector<std::string> sizes, ratios;
    for (auto const& [m, some] : rows)
      for (double ratio : some) {
        sizes.push_back(fmt::format("{}", m));
        ratios.push_back(fmt::format("{:.3f}", ratio));
      }
    lines.push_back(fmt::format(
        R"(      {{"format": {}, "accumulate": {}, "weight": {:g}, "n": {}, "k": {}, "m": [{}],{}"log_ratio": [{}]}})",
        json_quoted(to_string(format)), accumulate, weight, n, k, fmt::join(sizes, ", "), "\n        ",
        fmt::join(ratios, ", ")));
  }
  return "    \"residuals\": [\n" + join(lines) + "\n    ]";
}

} // namespace

std::optional<KnownChip> known_chip_of(Chip const& profile_chip) {
  for (KnownChip const& known : known_chips())
    if (known.profile_chip == profile_chip.name) {
      KnownChip chip = known;
      chip.chip = profile_chip;
      return chip;
    }
  return std::nullopt;
}

KernelAccuracy calibrate_kernels(KnownChip const& chip, std::vector<MeasuredKernel> const& own) {
  static std::vector<MeasuredKernel> const published = read_kernel_table(published_kernels_path()).kernels;
  std::vector<MeasuredKernel const*> rows;
  std::set<std::string> seen; // of the user's rows: a table may hold published ones
  for (MeasuredKernel const& row : own)
    if (row.chip == chip.name && serves_a_fit(row)) {
      rows.push_back(&row);
      seen.insert(identity(row));
    }
  for (MeasuredKernel const& row : published)
    if (row.chip == chip.name && serves_a_fit(row) && !seen.contains(identity(row)))
      rows.push_back(&row);
  return leave_families_out(chip, rows, rows);
}

ClockUnderLoad clock_under_load(KnownChip const& chip, KernelFit const& fit, std::vector<MeasuredKernel> const& own,
                                HardwareProfile const& profile) {
  auto const all = std::ranges::count(own, chip.name, &MeasuredKernel::chip);
  for (MachineClock const& clock : fit.clocks) {
    auto const mine = std::ranges::count_if(
        own, [&](auto const& row) { return row.chip == chip.name && row.machine == clock.machine; });
    if (2 * mine > all)
      return {
          clock.clock * fit.parameters.clock_under_load, "fitted",
          fmt::format("products of {}, against those of the machine that the other numbers rest on", clock.machine)};
  }
  for (Source const& source : profile.sources)
    if (source.key == "kernels.clock_under_load.value" || source.key == "kernels.clock_under_load")
      return {profile.kernels->clock_under_load, source.kind == Evidence::fitted ? "fitted" : "datasheet",
              source.source};
  if (chip.clock_under_load == 1 && fit.result.rows[kernel::matrix_16bit] == 0)
    return {1, "datasheet", "prior: that of the data sheet; no product of the chip is measured"};
  std::string source = chip.clock_under_load == 1 ? "that at which the rows of this fit were measured" : chip.source;
  for (MachineClock const& clock : fit.clocks)
    source += fmt::format("; products of {} ran at {:.2f} of it, as a lower power limit has it", clock.machine,
                          clock.clock);
  return {chip.clock_under_load, chip.clock_under_load == 1 ? "fitted" : "datasheet", source};
}

std::string machine_of(KnownChip const& chip, std::vector<MeasuredKernel> const& own) {
  std::map<std::string, int> counts;
  for (MeasuredKernel const& row : own)
    if (row.chip == chip.name && std::holds_alternative<GemmShape>(row.shape))
      ++counts[row.machine];
  auto const most = std::ranges::max_element(counts, {}, [](auto const& count) { return count.second; });
  return most == counts.end() ? "" : most->first;
}

std::string kernels_block(KnownChip const& chip, KernelAccuracy const& calibration, ClockUnderLoad const& clock,
                          std::string const& machine) {
  KernelFit const& fit = calibration.fit;
  std::vector<std::string> entries{
      entry("clock_under_load", fmt::format("{:.3g}", clock.value), clock.kind, clock.source)};
  std::string const rows = rows_text(calibration.rows);
  for (std::size_t i = 0; i < kernel::count; ++i) {
    KernelParameter const& parameter = kernel_parameters()[i];
    double const value = fit.parameters.values[i];
    bool const moved = is_known(fit.result, i) || std::abs(value / fit.priors[i].prior - 1) > 1e-3;
    std::string source = moved ? fmt::format("{}; fit to rows of {}", parameter.meaning, chip.name)
                               : fmt::format("prior: {}; no rows of {} say otherwise", parameter.meaning, chip.name);
    if (moved && !is_known(fit.result, i))
      source += fmt::format(", which leave {:.0f} % of the prior's width",
                            100 * fit.result.spread[i] / parameter.width);
    std::string const number = fmt::format("{}, \"prior\": {}, \"rows\": {}", value_json(parameter, value),
                                           value_json(parameter, fit.priors[i].prior), moved ? fit.result.rows[i] : 0);
    entries.push_back(entry(parameter.name, number, moved ? "fitted" : "datasheet", source));
  }
  std::vector<std::string> bands;
  for (std::size_t i = 0; i < kernel::class_count; ++i)
    if (calibration.band[i] > 0)
      bands.push_back("  " + entry(kernel_class_names()[i], fmt::format("{:.3f}", calibration.band[i]), "fitted",
                                   "spread of log(measured / predicted), families of shapes left out: " + rows));
  std::string text = "\"kernels\": {\n" + join(entries);
  if (!bands.empty())
    text += ",\n    \"band\": {\n" + join(bands) + "\n    }";
  if (!fit.residuals.empty())
    text += ",\n" + residuals_json(residuals_for(fit, machine));
  return text + "\n  }";
}

std::string kernel_parameter_table(KernelFit const& fit) {
  std::vector<std::vector<std::string>> rows{
      {"parameter", "value", "prior", "range", "of prior's width", "rows", "meaning"}};
  for (std::size_t i = 0; i < kernel::count; ++i) {
    KernelParameter const& parameter = kernel_parameters()[i];
    if (fit.result.rows[i] == 0)
      continue; // no row depends on it
    rows.push_back(
        {std::string(parameter.name), with_unit(parameter, fit.parameters.values[i]),
         with_unit(parameter, fit.priors[i].prior),
         fmt::format("{} to {}", with_unit(parameter, parameter.lowest), with_unit(parameter, parameter.highest)),
         fmt::format("{:.2f}", fit.result.spread[i] / parameter.width), std::to_string(fit.result.rows[i]),
         std::string(parameter.meaning)});
  }
  for (MachineClock const& clock : fit.clocks)
    rows.push_back(
        {"clock", fmt::format("{:.3f}", clock.clock), "1", "0.4 to 1.3", "", "", "of the machine of " + clock.machine});
  return table(rows);
}

std::string kernel_parameter_table(KernelParameters const& parameters) {
  std::vector<std::vector<std::string>> rows{
      {"parameter", "value", "prior", "lowest", "highest", "kind", "rows", "meaning"}};
  for (std::size_t i = 0; i < kernel::count; ++i) {
    KernelParameter const& parameter = kernel_parameters()[i];
    rows.push_back({std::string(parameter.name), with_unit(parameter, parameters.values[i]),
                    with_unit(parameter, parameters.priors[i]), with_unit(parameter, parameter.lowest),
                    with_unit(parameter, parameter.highest), is_moved(parameters, i) ? "fitted" : "prior",
                    fmt::format("{}", parameters.rows[i]), std::string(parameter.meaning)});
  }
  return table(rows);
}

} // namespace foreplan

#include "validate/calibrate/collectives_accuracy.hpp"

#include "io/input_error.hpp"
#include "report/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>

namespace foreplan {

namespace {

using Points = std::vector<MeasuredCollective>;

std::string cell_of(MeasuredCollective const& point) {
  return fmt::format("{}|{}|{}", point.chip, to_string(point.op), point.members);
}

// Curves of each cell.
std::map<std::string, std::set<std::string>> cells_of(Points const& published, Points const& judged) {
  std::map<std::string, std::set<std::string>> cells;
  for (Points const* points : {&published, &judged})
    for (MeasuredCollective const& point : *points)
      if (is_trusted(point))
        cells[cell_of(point)].insert(point.curve);
  return cells;
}

bool belongs(MeasuredCollective const& point, MeasuredCollective const& judged, LeaveOut leave_out) {
  return point.curve == judged.curve ||
         (leave_out == LeaveOut::cluster && point.chip == judged.chip && point.hardware == judged.hardware);
}

// Rows of one curve, predicted by a fit to `training`.
void judge_curve(std::vector<MeasuredCollective const*> const& curve, Points const& training, CollectiveFit const& fit,
                 bool only_curve, std::vector<JudgedCollective>& rows) {
  MeasuredCollective const& first = *curve.front();
  CollectiveFabric const& fabric = collective_fabrics()[static_cast<std::size_t>(fit.fabric)];
  CollectiveModel const model{.library = fabric.library,
                              .topology = fabric.topology,
                              .values = fit.values,
                              .residuals = residuals_of(training, fit, first.chip, first.hardware),
                              .band = 0};
  GroupShape const shape = shape_of(first);
  CollectiveCurve const plain = collective_curve(first.op, shape, model.library, model.topology, model.values);
  CollectiveCurve const corrected = collective_curve(first.op, shape, model);
  for (MeasuredCollective const* point : curve) {
    CollectiveTime const time = collective_time(corrected, point->bytes);
    rows.push_back({.point = *point,
                    .modelled = collective_time(plain, point->bytes).seconds,
                    .predicted = time.seconds,
                    .algorithm = time.algorithm,
                    .protocol = time.protocol,
                    .only_curve = only_curve});
  }
}

} // namespace

std::vector<JudgedCollective> judge_collectives(Points const& published, Points const& judged, LeaveOut leave_out) {
  std::map<std::string, std::set<std::string>> const cells = cells_of(published, judged);
  std::map<std::string, std::vector<MeasuredCollective const*>> curves;
  for (MeasuredCollective const& point : judged)
    if (is_trusted(point))
      curves[point.curve].push_back(&point);
  std::map<int, CollectiveFit> whole; // by fabric: where the fits without one curve begin
  std::vector<JudgedCollective> rows;
  for (auto const& [name, curve] : curves) {
    MeasuredCollective const& first = *curve.front();
    int const fabric = fabric_of(first.chip)->fabric;
    if (!whole.contains(fabric))
      whole.emplace(fabric, fit_collectives(published, fabric));
    Points training;
    for (MeasuredCollective const& point : published)
      if (serves_a_fit(point) && fabric_of(point.chip)->fabric == fabric && !belongs(point, first, leave_out))
        training.push_back(point);
    judge_curve(curve, training, fit_collectives(training, fabric, &whole.at(fabric).values),
                cells.at(cell_of(first)).size() == 1, rows);
  }
  return rows;
}

std::vector<JudgedCollective> judge_larger_groups(Points const& published, std::string_view source, int most_members) {
  Points training;
  std::map<std::string, std::vector<MeasuredCollective const*>> larger;
  for (MeasuredCollective const& point : published) {
    if (!is_trusted(point) || point.source.find(source) == std::string::npos)
      continue;
    if (point.members <= most_members)
      training.push_back(point);
    else
      larger[point.curve].push_back(&point);
  }
  std::vector<JudgedCollective> rows;
  if (training.empty())
    return rows;
  CollectiveFit const fit = fit_collectives(training, fabric_of(training.front().chip)->fabric);
  for (auto const& [name, curve] : larger)
    judge_curve(curve, training, fit, true, rows);
  return rows;
}

// ------------------------------------------------------------------------------------------------------------- groups

namespace {

constexpr double mebibyte = 1048576;

double log_ratio(JudgedCollective const& row) { return std::log(row.predicted / row.point.seconds); }

std::string size_of(JudgedCollective const& row) { return row.point.bytes >= mebibyte ? ">= 1 MiB" : "< 1 MiB"; }

std::string scale_of(JudgedCollective const& row) {
  int const nodes = shape_of(row.point).nodes; // NVLink domains
  return nodes == 1 ? "1 node" : nodes == 2 ? "2 nodes" : nodes <= 8 ? "3-8 nodes" : "> 8 nodes";
}

using Label = std::array<std::string, 5>; // chip, op, size, scale, cells

class Groups {
public:
  void add(JudgedCollective const& row) {
    std::string const cells = row.only_curve ? "one curve" : ">= 2 curves";
    std::string const chip = row.point.chip, op(to_string(row.point.op)), size = size_of(row), scale = scale_of(row);
    put({"all", "all", size, "all", cells}, row);
    put({chip, "all", size, "all", "all"}, row);
    put({"all", op, size, "all", "all"}, row);
    put({"all", "all", size, scale, "all"}, row);
    put({chip, op, size, scale, "all"}, row);
  }

  [[nodiscard]] std::vector<CollectiveBand> bands() const {
    constexpr std::size_t most_worst = 5;
    std::vector<CollectiveBand> result;
    for (Label const& label : order_) {
      std::vector<JudgedCollective const*> rows = rows_.at(label);
      std::vector<double> ratios;
      for (JudgedCollective const* row : rows)
        ratios.push_back(log_ratio(*row));
      std::stable_sort(rows.begin(), rows.end(), [](JudgedCollective const* a, JudgedCollective const* b) {
        return std::abs(log_ratio(*a)) > std::abs(log_ratio(*b));
      });
      rows.resize(std::min(rows.size(), most_worst));
      result.push_back({label[0], label[1], label[2], label[3], label[4], summarise(ratios), std::move(rows)});
    }
    // Pooled first, then by chip, by operation, by scale, then all of them crossed.
    auto const rank = [](CollectiveBand const& band) {
      int const chip = band.chip != "all", op = band.op != "all", scale = band.scale != "all";
      return std::tuple(chip + op + scale == 3, scale, op, chip, band.cells, band.chip, band.op, band.scale, band.size);
    };
    std::stable_sort(result.begin(), result.end(), [&](auto const& a, auto const& b) { return rank(a) < rank(b); });
    return result;
  }

private:
  void put(Label const& label, JudgedCollective const& row) {
    std::vector<JudgedCollective const*>& rows = rows_[label];
    if (rows.empty())
      order_.push_back(label);
    rows.push_back(&row);
  }

  std::map<Label, std::vector<JudgedCollective const*>> rows_;
  std::vector<Label> order_;
};

std::string percent(double fraction) { return fmt::format("{:.1f}", 100 * fraction); }

std::string size_text(double bytes) {
  constexpr double step = 1024;
  constexpr std::array<char const*, 4> units{"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  for (; bytes >= step && unit + 1 < units.size(); ++unit)
    bytes /= step;
  return fmt::format("{:.4g} {}", bytes, units[unit]);
}

std::string row_text(JudgedCollective const& row) {
  return fmt::format("{} {} {} on {} ranks, {}: measured {:.4g} us, predicted {:.4g} us ({:+.0f} %, {} {}); {}",
                     row.point.id, row.point.chip, to_string(row.point.op), row.point.members,
                     size_text(row.point.bytes), row.point.seconds * 1e6, row.predicted * 1e6,
                     100 * (row.predicted / row.point.seconds - 1), to_string(row.algorithm), to_string(row.protocol),
                     row.point.hardware);
}

// The sizes of the bar: 1, 16, 256 MiB, 1 GiB.
bool is_of_the_bar(JudgedCollective const& row) {
  double const size = row.point.bytes / mebibyte;
  return size == 1 || size == 16 || size == 256 || size == 1024;
}

double mean_error(std::vector<JudgedCollective> const& rows, int& count) {
  double sum = 0;
  count = 0;
  for (JudgedCollective const& row : rows)
    if (is_of_the_bar(row)) {
      sum += std::abs(row.predicted / row.point.seconds - 1);
      ++count;
    }
  return count > 0 ? sum / count : 0;
}

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      result += '\\';
    if (static_cast<unsigned char>(c) >= 0x20)
      result += c;
  }
  return result + '"';
}

std::string json_of(JudgedCollective const& row) {
  return fmt::format(
      R"({{"id": {}, "curve": {}, "chip": {}, "hardware": {}, "op": {}, "ranks": {}, "nodes": {}, "bytes": {}, )"
      R"("measured_s": {}, "predicted_s": {}, "without_correction_s": {}, "algorithm": {}, )"
      R"("protocol": {}}})",
      quoted(row.point.id), quoted(row.point.curve), quoted(row.point.chip), quoted(row.point.hardware),
      quoted(to_string(row.point.op)), row.point.members, row.point.nodes, row.point.bytes, row.point.seconds,
      row.predicted, row.modelled, quoted(to_string(row.algorithm)), quoted(to_string(row.protocol)));
}

} // namespace

std::vector<CollectiveBand> collective_bands(std::vector<JudgedCollective> const& rows) {
  Groups groups;
  for (JudgedCollective const& row : rows)
    groups.add(row);
  return groups.bands();
}

// ------------------------------------------------------------------------------------------------------------- report

Points published_collectives() { return read_collective_table(FOREPLAN_PUBLISHED "/collectives.csv").points; }

CollectiveAccuracyReport collective_accuracy(std::string const& data, LeaveOut leave_out, std::string const& chip) {
  Points const published = published_collectives();
  CollectiveAccuracyReport report{.data = data.empty() ? FOREPLAN_PUBLISHED "/collectives.csv" : data,
                                  .leave_out = leave_out,
                                  .rows = {},
                                  .larger_groups = {},
                                  .left_out = {}};
  CollectiveTable const table = data.empty() ? CollectiveTable{published, {}} : read_collective_points(data, chip);
  report.left_out = table.left_out;
  if (!chip.empty() && fabric_of(chip) == nullptr)
    throw InputError(fmt::format("--chip {}: must be one of {}", chip, collective_chips()));
  Points judged;
  for (MeasuredCollective const& point : table.points) {
    if (!chip.empty() && point.chip != chip)
      continue;
    if (is_trusted(point))
      judged.push_back(point);
    else
      ++report.left_out["trust C, or marked as unfit (fit_ok)"];
  }
  report.rows = judge_collectives(published, judged, leave_out);
  constexpr std::string_view azure_logs = "NetX-lab/Echo";
  constexpr int measured_up_to = 16;
  report.larger_groups = judge_larger_groups(judged, azure_logs, measured_up_to);
  return report;
}

std::string collective_accuracy_text(CollectiveAccuracyReport const& report) {
  std::string text = fmt::format("Collectives of {}, each curve predicted without {}.\n", report.data,
                                 report.leave_out == LeaveOut::curve ? "itself" : "all curves of its cluster");
  for (auto const& [why, count] : report.left_out)
    text += fmt::format("Not judged: {} rows, {}.\n", count, why);
  std::vector<CollectiveBand> const bands = collective_bands(report.rows);
  std::vector<std::vector<std::string>> lines{
      {"chip", "op", "size", "scale", "cells", "rows", "median %", "p90 %", "bias %"}};
  for (CollectiveBand const& band : bands)
    lines.push_back({band.chip, band.op, band.size, band.scale, band.cells, fmt::format("{}", band.errors.count),
                     percent(band.errors.median), percent(band.errors.p90),
                     fmt::format("{:+.1f}", 100 * band.errors.bias)});
  text += '\n' + table(lines);
  if (!report.larger_groups.empty()) {
    int count = 0;
    double const error = mean_error(report.larger_groups, count);
    text += fmt::format(
        "\nAzure A100 logs, fitted on 2 to 16 GPUs: {} points of 1, 16, 256 MiB and 1 GiB on more, mean "
        "error {} %.\n",
        count, percent(error));
  }
  text += "\nWorst rows:\n";
  for (CollectiveBand const& band : bands)
    if (band.cells != "all")
      for (JudgedCollective const* row : band.worst)
        text += "  " + row_text(*row) + '\n';
  return text;
}

std::string collective_accuracy_json(CollectiveAccuracyReport const& report) {
  std::string text = fmt::format(
      "{{\n  \"format\": \"foreplan accuracy 1\",\n  \"kind\": \"collectives\",\n  \"data\": {},\n"
      "  \"left_out\": {},\n  \"bands\": [",
      quoted(report.data), report.leave_out == LeaveOut::curve ? "\"curve\"" : "\"cluster\"");
  char const* comma = "\n    ";
  std::vector<CollectiveBand> const bands = collective_bands(report.rows);
  for (CollectiveBand const& band : bands) {
    text += fmt::format(R"({}{{"chip": {}, "op": {}, "size": {}, "scale": {}, "cells": {}, "count": {}, "median": {}, )"
                        R"("p90": {}, "bias": {}, "worst": [)",
                        comma, quoted(band.chip), quoted(band.op), quoted(band.size), quoted(band.scale),
                        quoted(band.cells), band.errors.count, band.errors.median, band.errors.p90, band.errors.bias);
    for (std::size_t i = 0; i < band.worst.size(); ++i)
      text += (i == 0 ? "" : ", ") + quoted(band.worst[i]->point.id);
    text += "]}";
    comma = ",\n    ";
  }
  int count = 0;
  double const error = mean_error(report.larger_groups, count);
  text += fmt::format("\n  ],\n  \"larger_groups\": {{\"count\": {}, \"mean\": {}}},\n  \"not_judged\": {{", count,
                      error);
  comma = "";
  for (auto const& [why, rows] : report.left_out) {
    text += fmt::format("{}{}: {}", comma, quoted(why), rows);
    comma = ", ";
  }
  text += "},\n  \"rows\": [";
  comma = "\n    ";
  for (JudgedCollective const& row : report.rows) {
    text += comma + json_of(row);
    comma = ",\n    ";
  }
  return text + "\n  ]\n}\n";
}

} // namespace foreplan

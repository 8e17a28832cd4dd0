#include "validate/calibrate/collectives_points.hpp"

#include "io/input_error.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <fstream>
#include <map>

namespace foreplan {

namespace {

using Topology = ScaleUpTopology;
constexpr std::array all_fabrics{
    Fabric{"NVLink 2, NCCL", CollectiveLibrary::nccl, Topology::hybrid_cube_mesh, false},
    Fabric{"NVLink 3, NCCL", CollectiveLibrary::nccl, Topology::switched, false},
    Fabric{"NVLink 4, NCCL", CollectiveLibrary::nccl, Topology::switched, true},
    Fabric{"NVLink 5, NCCL", CollectiveLibrary::nccl, Topology::switched, true},
    Fabric{"xGMI, RCCL", CollectiveLibrary::rccl, Topology::mesh, false},
};

// Line rates: notes, hardware.md A3 and B2.
constexpr std::array all_chips{
    FabricOfChip{"v100-16", 0, 150e9, 8, 12.5e9}, FabricOfChip{"v100-32", 0, 150e9, 8, 12.5e9},
    FabricOfChip{"a100-40", 1, 300e9, 8, 25e9},   FabricOfChip{"a100-80", 1, 300e9, 8, 25e9},
    FabricOfChip{"a800-80", 1, 200e9, 8, 25e9},   FabricOfChip{"h100", 2, 450e9, 8, 50e9},
    FabricOfChip{"h800", 2, 200e9, 8, 50e9},      FabricOfChip{"h200", 2, 450e9, 8, 50e9},
    FabricOfChip{"b200", 3, 900e9, 8, 50e9},      FabricOfChip{"b300", 3, 900e9, 8, 100e9},
    FabricOfChip{"gb200", 3, 900e9, 72, 50e9},    FabricOfChip{"gb300", 3, 900e9, 72, 100e9},
    FabricOfChip{"mi300x", 4, 448e9, 8, 50e9},    FabricOfChip{"mi325x", 4, 448e9, 8, 50e9},
    FabricOfChip{"mi350x", 4, 535.5e9, 8, 50e9},  FabricOfChip{"mi355x", 4, 535.5e9, 8, 50e9},
};

} // namespace

std::span<Fabric const> fabrics() { return all_fabrics; }

FabricOfChip const* fabric_of(std::string_view chip) {
  for (FabricOfChip const& known : all_chips)
    if (known.chip == chip)
      return &known;
  return nullptr;
}

std::string known_chips() {
  std::string names;
  for (FabricOfChip const& known : all_chips)
    names += (names.empty() ? "" : ", ") + std::string(known.chip);
  return names;
}

GroupShape shape_of(MeasuredCollective const& point) {
  FabricOfChip const& chip = *fabric_of(point.chip);
  GroupShape shape;
  shape.members = point.members;
  shape.scale_up = chip.scale_up;
  // A node of the model is what the scale-up fabric joins. Racks of 72 are used with 64 where that divides the job.
  int const rack = chip.domain <= 8 ? chip.domain : point.members % 64 == 0 ? 64 : chip.domain;
  shape.nodes = chip.domain > 8 ? (point.members + rack - 1) / rack : point.nodes;
  shape.on_a_node = std::max(1, point.members / shape.nodes);
  shape.node_devices = std::max(rack, shape.on_a_node);
  shape.network = (point.nic_rate > 0 ? point.nic_rate : chip.nic) * shape.on_a_node;
  return shape;
}

namespace {

std::vector<std::string> cells_of(std::string const& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    char const c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"')
      cells.back() += line[++i];
    else if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else if (c != '\r')
      cells.back() += c;
  }
  return cells;
}

struct Row {
  std::string const& path;
  int line;
  std::map<std::string, std::size_t> const& columns;
  std::vector<std::string> const& cells;

  [[nodiscard]] std::string text(std::string const& column) const {
    auto const found = columns.find(column);
    return found == columns.end() || found->second >= cells.size() ? std::string() : cells[found->second];
  }
  [[noreturn]] void fail(std::string const& column, std::string_view rule) const {
    throw InputError(fmt::format("{}:{}: {}: \"{}\" {}", path, line, column, text(column), rule));
  }
  [[nodiscard]] double number(std::string const& column, double least, std::optional<double> missing = {}) const {
    std::string const value = text(column);
    if (value.empty() && missing)
      return *missing;
    double result = 0;
    auto const [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size() || !(result >= least) || !(result < 1e18))
      fail(column, fmt::format("must be a number, at least {}", least));
    return result;
  }
};

CollectiveOp op_of(Row const& row) {
  std::string const name = row.text("op");
  for (CollectiveOp op : {CollectiveOp::all_reduce, CollectiveOp::all_gather, CollectiveOp::reduce_scatter,
                          CollectiveOp::all_to_all, CollectiveOp::broadcast, CollectiveOp::send_receive})
    if (to_string(op) == name)
      return op;
  row.fail("op", "must be one of all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, sendrecv");
}

MeasuredCollective point_of(Row const& row) {
  MeasuredCollective point;
  point.id = row.text("row_id");
  point.chip = row.text("chip");
  point.hardware = row.text("hardware");
  point.source = row.text("source");
  point.trust = row.text("trust");
  point.usable = row.number("fit_ok", 0, 1) != 0;
  if (fabric_of(point.chip) == nullptr)
    row.fail("chip", "must be one of " + known_chips());
  point.op = op_of(row);
  point.members = static_cast<int>(row.number("gpus", 2));
  point.nodes = static_cast<int>(row.number("nodes", 1, 1));
  if (point.nodes > point.members)
    row.fail("nodes", fmt::format("must not be more than gpus, {}", point.members));
  point.nic_rate = row.number("internode_GBps_per_gpu", 0, 0) * 1e9;
  point.bytes = row.number("bytes", 0);
  point.seconds = row.number("time_us", 0) * 1e-6;
  point.curve = row.text("curve");
  if (point.curve.empty())
    point.curve = fmt::format("{}|{}|{}x|{}|{}", point.source, point.chip, point.nodes, point.members, to_string(point.op));
  return point;
}

} // namespace

std::vector<MeasuredCollective> read_collective_table(std::string const& path) {
  std::ifstream file(path);
  if (!file)
    throw InputError(fmt::format("{}: cannot be read", path));
  std::string line;
  std::getline(file, line);
  std::map<std::string, std::size_t> columns;
  std::vector<std::string> const names = cells_of(line);
  for (std::size_t i = 0; i < names.size(); ++i)
    columns.emplace(names[i], i);
  for (char const* needed : {"chip", "gpus", "op", "bytes", "time_us"})
    if (!columns.contains(needed))
      throw InputError(fmt::format("{}:1: column {} is missing; needed are chip, gpus, op, bytes, time_us", path, needed));
  std::vector<MeasuredCollective> points;
  for (int number = 2; std::getline(file, line); ++number) {
    if (line.empty() || line == "\r")
      continue;
    std::vector<std::string> const cells = cells_of(line);
    MeasuredCollective point = point_of(Row{path, number, columns, cells});
    if (point.bytes > 0 && point.seconds > 0)
      points.push_back(std::move(point));
  }
  return points;
}

} // namespace foreplan

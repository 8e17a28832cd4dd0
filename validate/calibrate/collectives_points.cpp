#include "validate/calibrate/collectives_points.hpp"

#include "interop/nccl_tests.hpp"
#include "io/input_error.hpp"
#include "validate/calibrate/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <fstream>

namespace foreplan {

namespace {

using Topology = ScaleUp;
constexpr std::array all_fabrics{
    CollectiveFabric{"NVLink 2, NCCL", CollectiveLibrary::nccl, Topology::hybrid_cube_mesh, false},
    CollectiveFabric{"NVLink 3, NCCL", CollectiveLibrary::nccl, Topology::switched, false},
    CollectiveFabric{"NVLink 4, NCCL", CollectiveLibrary::nccl, Topology::switched, true},
    CollectiveFabric{"NVLink 5, NCCL", CollectiveLibrary::nccl, Topology::switched, true},
    CollectiveFabric{"xGMI, RCCL", CollectiveLibrary::rccl, Topology::full_mesh, false},
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

std::span<CollectiveFabric const> collective_fabrics() { return all_fabrics; }

FabricOfChip const* fabric_of(std::string_view chip) {
  for (FabricOfChip const& known : all_chips)
    if (known.chip == chip)
      return &known;
  return nullptr;
}

std::string collective_chips() {
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

std::optional<CollectiveOp> op_named(std::string const& name) {
  for (CollectiveOp op : {CollectiveOp::all_reduce, CollectiveOp::all_gather, CollectiveOp::reduce_scatter,
                          CollectiveOp::all_to_all, CollectiveOp::broadcast, CollectiveOp::send_receive})
    if (to_string(op) == name)
      return op;
  return std::nullopt;
}

int count(CsvRow const& row, std::string_view column, int least) {
  double const value = row.required(column);
  if (value != std::floor(value) || value < least || value > 1e7)
    row.fail(column, fmt::format("must be a whole number, at least {}", least));
  return static_cast<int>(value);
}

MeasuredCollective point_of(CsvRow const& row) {
  MeasuredCollective point;
  point.id = row.text_or_empty("row_id");
  point.chip = row.text("chip");
  point.hardware = row.text_or_empty("hardware");
  point.source = row.text_or_empty("source");
  point.trust = row.text_or_empty("trust");
  point.usable = row.text_or_empty("fit_ok") != "0";
  point.op = *op_named(row.text("op"));
  point.members = count(row, "gpus", 2);
  int const domain = fabric_of(point.chip)->domain; // where nodes are not given: as few as hold the devices
  point.nodes = row.text_or_empty("nodes").empty() ? (point.members + domain - 1) / domain : count(row, "nodes", 1);
  if (point.nodes > point.members)
    row.fail("nodes", fmt::format("must not be more than gpus, {}", point.members));
  if (!row.text_or_empty("internode_GBps_per_gpu").empty())
    point.nic_rate = row.required("internode_GBps_per_gpu") * 1e9;
  point.bytes = row.required("bytes");
  point.seconds = row.required("time_us") * 1e-6;
  point.curve = row.text_or_empty("curve");
  if (point.curve.empty())
    point.curve = fmt::format("{}|{}|{}x|{}|{}", point.source, point.chip, point.nodes, point.members,
                              to_string(point.op));
  return point;
}

} // namespace

CollectiveTable read_collective_table(std::string const& path) {
  CsvTable const csv = read_csv(path);
  CollectiveTable table;
  for (std::size_t i = 0; i < csv.rows.size(); ++i) {
    CsvRow const row(csv, i);
    if (fabric_of(row.text("chip")) == nullptr)
      ++table.left_out["chip " + row.text("chip")];
    else if (!op_named(row.text("op")))
      ++table.left_out["operation " + row.text("op")];
    else
      table.points.push_back(point_of(row));
  }
  return table;
}

std::string chip_named(std::string_view device) {
  std::string name;
  for (char c : device)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  bool const small = name.find("40g") != std::string::npos || name.find("16g") != std::string::npos;
  constexpr std::pair<std::string_view, std::string_view> names[] = {
      {"gb300", "gb300"},   {"gb200", "gb200"},   {"b300", "b300"},     {"b200", "b200"},    {"h200", "h200"},
      {"h100", "h100"},     {"h800", "h800"},     {"a100", "a100-80"},  {"a800", "a800-80"}, {"v100", "v100-32"},
      {"mi300x", "mi300x"}, {"mi325x", "mi325x"}, {"mi350x", "mi350x"}, {"mi355x", "mi355x"}};
  for (auto const& [part, chip] : names)
    if (name.find(part) != std::string::npos)
      return small && chip == "a100-80" ? "a100-40" : small && chip == "v100-32" ? "v100-16" : std::string(chip);
  return {};
}

namespace {

// Nodes of a run that lists no hosts: as few as hold its devices.
int nodes_of(NcclTestsRun const& run, std::string const& chip) {
  int const domain = fabric_of(chip)->domain;
  return run.nodes > 0 ? run.nodes : (run.ranks + domain - 1) / domain;
}

void add_run(NcclTestsRun const& run, std::string const& path, std::string const& chip, double nic_rate,
             CollectiveTable& table) {
  if (!run.op || run.ranks < 2) {
    table.left_out[run.ranks < 2 ? "runs of one device, or of an unknown number" : "unknown operations"] +=
        static_cast<int>(run.points.size());
    return;
  }
  MeasuredCollective point;
  point.chip = chip;
  point.source = point.hardware = path;
  point.trust = "A";
  point.members = run.ranks;
  point.nodes = nodes_of(run, chip);
  point.nic_rate = nic_rate > 0 ? nic_rate : fabric_of(chip)->nic;
  point.op = *run.op;
  point.curve = fmt::format("{}|{}|{}x|{}|{}", path, chip, point.nodes, run.ranks, to_string(*run.op));
  for (NcclTestsPoint const& measured : run.points) {
    std::optional<double> const seconds = measured.out_of_place ? measured.out_of_place : measured.in_place;
    if (!seconds)
      continue;
    point.id = fmt::format("{} bytes", measured.bytes);
    point.bytes = measured.bytes;
    point.seconds = *seconds;
    table.points.push_back(point);
  }
}

bool is_table(std::string const& path) {
  std::ifstream file(path);
  std::string line;
  return std::getline(file, line) &&
         (line.find("time_us") != std::string::npos || line.find("chip,") != std::string::npos);
}

} // namespace

CollectiveTable read_collective_points(std::string const& path, std::string const& chip, double nic_rate) {
  if (is_table(path))
    return read_collective_table(path);
  CollectiveTable table;
  for (NcclTestsRun const& run : read_nccl_tests(path)) {
    std::string const named = chip_named(run.device);
    std::string const& used = named.empty() ? chip : named;
    if (fabric_of(used) == nullptr)
      throw InputError(fmt::format("{}: chip \"{}\": must be given where the file names no device, one of {}", path,
                                   used, collective_chips()));
    add_run(run, path, used, nic_rate, table);
  }
  return table;
}

} // namespace foreplan

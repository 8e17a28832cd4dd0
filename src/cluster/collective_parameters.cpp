#include "cluster/collective_parameters.hpp"

#include "io/json_reader.hpp"
#include "units/quantity.hpp"

#include <fmt/format.h>

#include <cmath>

namespace foreplan {

std::string_view to_string(CollectiveLibrary library) { return library == CollectiveLibrary::nccl ? "nccl" : "rccl"; }

std::string_view to_string(ScaleUp topology) {
  switch (topology) {
    case ScaleUp::switched: return "switched";
    case ScaleUp::full_mesh: return "full_mesh";
    case ScaleUp::hybrid_cube_mesh: return "hybrid_cube_mesh";
    case ScaleUp::pcie: return "pcie";
  }
  return "?";
}

std::string_view to_string(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::all_reduce: return "all_reduce";
    case CollectiveOp::all_gather: return "all_gather";
    case CollectiveOp::reduce_scatter: return "reduce_scatter";
    case CollectiveOp::all_to_all: return "all_to_all";
    case CollectiveOp::broadcast: return "broadcast";
    case CollectiveOp::send_receive: return "sendrecv";
  }
  return "?";
}

std::array<CollectiveParameter, collective::count> const& collective_parameters() {
  static constexpr std::array<CollectiveParameter, collective::count> all{{
      {"base", "us", "fixed part of a collective, LL", false},
      {"hop", "us", "ring step inside the node, LL", false},
      {"hop_simple", "us", "ring step inside the node, Simple", false},
      {"ring", "", "rate of rings over the scale-up line rate", false},
      {"point_to_point", "", "rate of all-to-all and send/receive over the scale-up line rate", false},
      {"multicast", "", "NVLS: buffer bytes a second over the scale-up line rate", false},
      {"own_share", "", "rate at which a rank handles its own part of the buffer over the scale-up line rate", false},
      {"ramp", "KiB", "bytes on the wire that take twice their time at full rate", false},
      {"network", "", "rate of rings over the NICs' line rate", true},
      {"network_hop", "us", "ring step between nodes, LL", true},
      {"network_hop_simple", "us", "ring step between nodes, Simple", true},
      {"multicast_tree", "", "rate of NVLSTree over NVLS", true},
      {"network_all_to_all", "", "rate of all-to-all and send/receive over the NICs' line rate", true},
  }};
  return all;
}

// NCCL: base and hops of tuning.cc; rates: 20 of 25 GB/s a link (ring), 0.85 of the channels' rate and two for the
// reduction in the switch (NVLS), 0.95 of a NIC. RCCL: tuning model 5 (gfx942) and 48 of 64 GB/s a link.
CollectiveValues collective_priors(CollectiveLibrary library) {
  constexpr double us = 1e-6;
  constexpr double kibibyte = 1024;
  if (library == CollectiveLibrary::nccl)
    return {6.6 * us, 0.6 * us, 3.4 * us, 0.8, 0.75, 0.6, 2, 256 * kibibyte, 0.95, 2.7 * us, 14 * us, 0.9, 0.9};
  return {12 * us, 0.8 * us, 2.1 * us, 0.75, 0.75, 0, 2, 256 * kibibyte, 0.95, 9.5 * us, 25 * us, 0.9, 0.9};
}

std::array<double, collective::count> const& collective_prior_widths() {
  static constexpr std::array<double, collective::count> widths{0.5, 0.5, 0.5, 0.1, 0.2, 0.2, 0.5,
                                                                1.0, 0.2, 0.4, 0.4, 0.1, 0.3};
  return widths;
}

// Times within a factor of 4 of the library's table; rates between a third of the prior and the line rate.
std::array<CollectiveRange, collective::count> const& collective_ranges() {
  static constexpr std::array<CollectiveRange, collective::count> ranges{{{4, 4},
                                                                          {4, 4},
                                                                          {4, 4},
                                                                          {2, 1.25},
                                                                          {2, 1.3},
                                                                          {2, 1.5},
                                                                          {4, 4},
                                                                          {64, 64},
                                                                          {3, 1.05},
                                                                          {4, 4},
                                                                          {4, 4},
                                                                          {2, 1.1},
                                                                          {3, 1.1}}};
  return ranges;
}

namespace {

CollectiveOp read_op(JsonReader const& reader) {
  return reader.choice<CollectiveOp>({{"all_reduce", CollectiveOp::all_reduce},
                                      {"all_gather", CollectiveOp::all_gather},
                                      {"reduce_scatter", CollectiveOp::reduce_scatter},
                                      {"all_to_all", CollectiveOp::all_to_all},
                                      {"broadcast", CollectiveOp::broadcast},
                                      {"sendrecv", CollectiveOp::send_receive}});
}

CollectiveResidual read_residual(JsonReader const& reader) {
  constexpr int most_members = 1 << 20;
  reader.expect_keys({"op", "members", "nodes", "weight", "log2_bytes", "log_ratio"});
  CollectiveResidual residual;
  residual.op = read_op(reader["op"]);
  residual.members = static_cast<int>(reader["members"].integer(2, most_members));
  residual.nodes = static_cast<int>(reader["nodes"].integer(1, residual.members));
  residual.weight = reader["weight"].number(0, 1);
  std::vector<JsonReader> const sizes = reader["log2_bytes"].elements();
  std::vector<JsonReader> const ratios = reader["log_ratio"].elements();
  if (sizes.size() != ratios.size())
    reader["log_ratio"].fail(fmt::format("must have as many numbers as log2_bytes, {}", sizes.size()));
  for (std::size_t i = 0; i < sizes.size(); ++i)
    residual.octaves.push_back({static_cast<int>(sizes[i].integer(0, 50)), ratios[i].number(-3, 3)});
  return residual;
}

double read_number(JsonReader const& value, CollectiveParameter const& parameter) {
  if (parameter.unit == "us")
    return value.quantity<Seconds>().value();
  return parameter.unit == "KiB" ? value.quantity<Bytes>().value() : value.number(0, 100);
}

} // namespace

bool is_moved(CollectiveModel const& model, std::size_t parameter) {
  constexpr double rounding = 1e-3; // of what the file holds
  return model.points[parameter] > 0 ||
         std::abs(model.values[parameter] - model.prior[parameter]) > rounding * model.prior[parameter];
}

CollectiveModel read_collective_model(JsonReader const& reader, ScaleUp topology, std::vector<Source>& sources) {
  reader.expect_keys({"library", "kind", "source", "parameters", "residuals", "band"});
  CollectiveModel model;
  model.library = reader["library"].choice<CollectiveLibrary>(
      {{"nccl", CollectiveLibrary::nccl}, {"rccl", CollectiveLibrary::rccl}});
  model.topology = topology;
  Evidence const kind = reader["kind"].choice<Evidence>(
      {{"datasheet", Evidence::datasheet}, {"fitted", Evidence::fitted}, {"measured", Evidence::measured}});
  model.band = reader["band"].number(0, 10);
  JsonReader const parameters = reader["parameters"];
  for (std::size_t i = 0; i < collective::count; ++i) {
    CollectiveParameter const& parameter = collective_parameters()[i];
    JsonReader const entry = parameters[parameter.name];
    entry.expect_keys({"value", "prior", "points"});
    model.values[i] = read_number(entry["value"], parameter);
    model.points[i] = static_cast<int>(entry["points"].integer(0, 1 << 20));
    model.prior[i] = read_number(entry["prior"], parameter);
    bool const moved = is_moved(model, i);
    // What no measurement moved stands at its prior, the library's own table.
    sources.push_back({entry.path(), moved ? kind : Evidence::datasheet,
                       moved ? reader["source"].text() : "prior: the library's tuning table",
                       entry["value"].as_it_stands()});
  }
  if (std::optional<JsonReader> residuals = reader.find("residuals"))
    for (JsonReader const& residual : residuals->elements())
      model.residuals.push_back(read_residual(residual));
  return model;
}

} // namespace foreplan

#include "cluster/read_profile.hpp"

#include <fmt/format.h>

namespace foreplan {
namespace {

constexpr int most_devices = 1024; // of a node
constexpr int most_meshed = 64;    // in a full mesh: pairs are numbered over the whole cluster

// The value of a number with its origin, which is noted in `sources`.
JsonReader value_of(JsonReader const& entry, std::vector<Source>& sources) {
  entry.expect_keys({"value", "kind", "source"});
  Evidence kind = entry["kind"].choice<Evidence>(
      {{"datasheet", Evidence::datasheet}, {"fitted", Evidence::fitted}, {"measured", Evidence::measured}});
  JsonReader value = entry["value"];
  sources.push_back({entry.path(), kind, entry["source"].text(), value.as_it_stands()});
  return value;
}

template <class Q>
Q read_positive(JsonReader const& entry, std::vector<Source>& sources) {
  JsonReader value = value_of(entry, sources);
  Q quantity = value.quantity<Q>();
  if (quantity.value() == 0)
    value.fail("must be more than 0");
  return quantity;
}

template <class Q>
Q read_quantity(JsonReader const& entry, std::vector<Source>& sources) {
  return value_of(entry, sources).quantity<Q>();
}

int read_count(JsonReader const& entry, int most, std::vector<Source>& sources) {
  return static_cast<int>(value_of(entry, sources).integer(1, most));
}

// Optional numbers.
template <class Q>
void read_if_given(JsonReader const& reader, std::string_view key, Q& quantity, std::vector<Source>& sources) {
  if (auto const entry = reader.find(key))
    quantity = read_positive<Q>(*entry, sources);
}

void read_if_given(JsonReader const& reader, std::string_view key, double& number, double most,
                   std::vector<Source>& sources) {
  if (auto const entry = reader.find(key))
    number = value_of(*entry, sources).number(0, most);
}

void read_if_given(JsonReader const& reader, std::string_view key, int& count, int most, std::vector<Source>& sources) {
  if (auto const entry = reader.find(key))
    count = read_count(*entry, most, sources);
}

double read_fraction(JsonReader const& entry, std::vector<Source>& sources) {
  constexpr double least = 0.001; // a rate of zero would never end
  return value_of(entry, sources).number(least, 1);
}

Chip read_chip(JsonReader const& reader, std::vector<Source>& sources) {
  reader.expect_keys({"name", "bf16_peak", "fp32_peak", "tf32_peak", "fp16_peak", "fp8_peak", "fp6_peak", "fp4_peak",
                      "int8_peak", "memory", "memory_bandwidth", "multiprocessors", "last_level_cache", "max_clock_mhz",
                      "load_clock_mhz", "power_watts"});
  Chip chip;
  chip.name = reader["name"].text();
  chip.bf16_peak = read_positive<FlopsPerSecond>(reader["bf16_peak"], sources);
  chip.fp32_peak = read_positive<FlopsPerSecond>(reader["fp32_peak"], sources);
  read_if_given(reader, "tf32_peak", chip.tf32_peak, sources);
  read_if_given(reader, "fp16_peak", chip.fp16_peak, sources);
  read_if_given(reader, "fp8_peak", chip.fp8_peak, sources);
  read_if_given(reader, "fp6_peak", chip.fp6_peak, sources);
  read_if_given(reader, "fp4_peak", chip.fp4_peak, sources);
  read_if_given(reader, "int8_peak", chip.int8_peak, sources);
  chip.memory = read_positive<Bytes>(reader["memory"], sources);
  chip.memory_bandwidth = read_positive<BytesPerSecond>(reader["memory_bandwidth"], sources);
  chip.multiprocessors = read_count(reader["multiprocessors"], 1 << 16, sources);
  read_if_given(reader, "last_level_cache", chip.last_level_cache, sources);
  read_if_given(reader, "max_clock_mhz", chip.max_clock_mhz, 1e5, sources);
  read_if_given(reader, "load_clock_mhz", chip.load_clock_mhz, 1e5, sources);
  read_if_given(reader, "power_watts", chip.power_watts, 1e5, sources);
  return chip;
}

Host read_host(JsonReader const& reader, std::vector<Source>& sources) {
  reader.expect_keys({"processor", "sockets", "cores", "memory", "memory_bandwidth", "core_bandwidth", "link",
                      "devices_per_link", "shared_link", "half_duplex", "systems", "drives", "drive_capacity",
                      "drive_read", "drive_write", "drive_latency"});
  Host host;
  host.processor = reader["processor"].text();
  host.sockets = read_count(reader["sockets"], 1 << 10, sources);
  host.cores = read_count(reader["cores"], 1 << 20, sources);
  host.memory = read_positive<Bytes>(reader["memory"], sources);
  host.memory_bandwidth = read_positive<BytesPerSecond>(reader["memory_bandwidth"], sources);
  read_if_given(reader, "core_bandwidth", host.core_bandwidth, sources);
  host.link = read_positive<BytesPerSecond>(reader["link"], sources);
  read_if_given(reader, "devices_per_link", host.devices_per_link, most_devices, sources);
  read_if_given(reader, "shared_link", host.shared_link, sources);
  if (auto const half_duplex = reader.find("half_duplex"))
    host.half_duplex = half_duplex->boolean();
  read_if_given(reader, "systems", host.systems, most_devices, sources);
  read_if_given(reader, "drives", host.drives, 1 << 10, sources);
  if (host.drives == 0)
    return host;
  host.drive_capacity = read_positive<Bytes>(reader["drive_capacity"], sources);
  host.drive_read = read_positive<BytesPerSecond>(reader["drive_read"], sources);
  host.drive_write = read_positive<BytesPerSecond>(reader["drive_write"], sources);
  read_if_given(reader, "drive_latency", host.drive_latency, sources);
  return host;
}

Fabric read_fabric(JsonReader const& reader, std::vector<Source>& sources) {
  reader.expect_keys(
      {"kind", "rails", "nodes_per_leaf", "oversubscription", "shares", "leaf_latency", "spine_latency"});
  Fabric fabric;
  fabric.kind = reader["kind"].choice<FabricKind>(
      {{"infiniband", FabricKind::infiniband}, {"roce", FabricKind::roce}, {"efa", FabricKind::efa}});
  fabric.rails = reader["rails"].boolean();
  read_if_given(reader, "nodes_per_leaf", fabric.nodes_per_leaf, 1 << 20, sources);
  fabric.oversubscription = value_of(reader["oversubscription"], sources).number(1, 1000);
  if (fabric.oversubscription > 1 && fabric.nodes_per_leaf == 0)
    reader["oversubscription"]["value"].fail("needs nodes_per_leaf: what it is that shares the links to the spines");
  if (auto const shares = reader.find("shares"))
    for (JsonReader const& entry : shares->elements()) {
      entry.expect_keys({"nodes", "share"});
      fabric.shares.push_back(
          {static_cast<int>(entry["nodes"].integer(2, 1 << 20)), value_of(entry["share"], sources).number(1e-3, 1)});
      if (fabric.shares.size() > 1 && fabric.shares.back().nodes <= fabric.shares[fabric.shares.size() - 2].nodes)
        entry["nodes"].fail("must be above that of the entry before");
    }
  read_if_given(reader, "leaf_latency", fabric.leaf_latency, sources);
  read_if_given(reader, "spine_latency", fabric.spine_latency, sources);
  return fabric;
}

Node read_node(JsonReader const& reader, std::vector<Source>& sources) {
  reader.expect_keys({"devices", "topology", "switches", "scale_up", "scale_up_latency", "nics", "nic",
                      "network_latency", "devices_per_pcie_switch", "host"});
  Node node;
  node.devices = read_count(reader["devices"], most_devices, sources);
  if (auto const topology = reader.find("topology"))
    node.topology = topology->choice<ScaleUp>({{"switched", ScaleUp::switched},
                                               {"full_mesh", ScaleUp::full_mesh},
                                               {"hybrid_cube_mesh", ScaleUp::hybrid_cube_mesh},
                                               {"pcie", ScaleUp::pcie}});
  if (node.topology == ScaleUp::full_mesh && node.devices > most_meshed)
    reader["devices"]["value"].fail(fmt::format("must be at most {} in a full mesh", most_meshed));
  read_if_given(reader, "switches", node.switches, most_devices, sources);
  node.scale_up = read_positive<BytesPerSecond>(reader["scale_up"], sources);
  node.scale_up_latency = read_quantity<Seconds>(reader["scale_up_latency"], sources);
  node.nics = read_count(reader["nics"], node.devices, sources); // more NICs than devices: give their sum per device
  node.nic = read_positive<BytesPerSecond>(reader["nic"], sources);
  node.network_latency = read_quantity<Seconds>(reader["network_latency"], sources);
  read_if_given(reader, "devices_per_pcie_switch", node.devices_per_pcie_switch, node.devices, sources);
  if (auto const host = reader.find("host"))
    node.host = read_host(*host, sources);
  return node;
}

Efficiencies read_efficiencies(JsonReader const& reader, std::vector<Source>& sources) {
  reader.expect_keys({"gemm", "attention", "memory_bound", "scale_up", "network"});
  Efficiencies efficiency;
  efficiency.gemm = read_fraction(reader["gemm"], sources);
  efficiency.attention = read_fraction(reader["attention"], sources);
  efficiency.memory_bound = read_fraction(reader["memory_bound"], sources);
  efficiency.scale_up = read_fraction(reader["scale_up"], sources);
  efficiency.network = read_fraction(reader["network"], sources);
  return efficiency;
}

} // namespace

HardwareProfile read_profile(std::string const& path) {
  return read_profile(JsonReader::read_file(path, "foreplan hardware 1"));
}

HardwareProfile read_profile(JsonReader const& reader) {
  reader.expect_keys({"name", "chip", "node", "fabric", "device_hour_price", "efficiency", "overheads", "kernels",
                      "collectives", "ops"});
  HardwareProfile profile;
  std::vector<Source>& sources = profile.sources;
  profile.name = reader["name"].text();
  profile.chip = read_chip(reader["chip"], sources);
  profile.node = read_node(reader["node"], sources);
  if (auto const fabric = reader.find("fabric"))
    profile.fabric = read_fabric(*fabric, sources);
  read_if_given(reader, "device_hour_price", profile.device_hour_price, 1e6, sources);
  profile.efficiency = read_efficiencies(reader["efficiency"], sources);
  if (auto const kernels = reader.find("kernels"))
    profile.kernels = read_kernel_parameters(*kernels, profile.chip, sources);
  if (auto const ops = reader.find("ops"))
    profile.ops = read_op_costs(*ops, sources);

  JsonReader overheads = reader["overheads"];
  overheads.expect_keys({"kernel_fixed", "issue", "collective_base", "collective_multiprocessors", "reserved"});
  profile.kernel_fixed = read_quantity<Seconds>(overheads["kernel_fixed"], sources);
  profile.issue = read_quantity<Seconds>(overheads["issue"], sources);
  profile.collective_base = read_quantity<Seconds>(overheads["collective_base"], sources);
  profile.collective_multiprocessors = static_cast<int>(
      value_of(overheads["collective_multiprocessors"], sources).integer(0, profile.chip.multiprocessors));
  JsonReader reserved = value_of(overheads["reserved"], sources);
  profile.reserved = reserved.quantity<Bytes>();
  if (profile.reserved >= profile.chip.memory)
    reserved.fail("must be less than chip.memory");
  if (auto const collectives = reader.find("collectives"))
    profile.collectives = read_collective_model(*collectives, profile.node.topology, sources);
  return profile;
}

} // namespace foreplan

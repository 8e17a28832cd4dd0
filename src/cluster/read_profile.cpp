#include "cluster/read_profile.hpp"

namespace foreplan {
namespace {

constexpr int most_devices = 1024; // of a node

// The value of a number with its origin, which is noted in `sources`.
JsonReader value_of(JsonReader const& entry, std::vector<Source>& sources) {
  entry.expect_keys({"value", "kind", "source"});
  Evidence kind = entry["kind"].choice<Evidence>(
      {{"datasheet", Evidence::datasheet}, {"fitted", Evidence::fitted}, {"measured", Evidence::measured}});
  sources.push_back({entry.path(), kind, entry["source"].text()});
  return entry["value"];
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

double read_fraction(JsonReader const& entry, std::vector<Source>& sources) {
  constexpr double least = 0.001; // a rate of zero would never end
  return value_of(entry, sources).number(least, 1);
}

Chip read_chip(JsonReader const& reader, std::vector<Source>& sources) {
  reader.expect_keys({"name", "bf16_peak", "fp32_peak", "memory", "memory_bandwidth", "multiprocessors"});
  Chip chip;
  chip.name = reader["name"].text();
  chip.bf16_peak = read_positive<FlopsPerSecond>(reader["bf16_peak"], sources);
  chip.fp32_peak = read_positive<FlopsPerSecond>(reader["fp32_peak"], sources);
  chip.memory = read_positive<Bytes>(reader["memory"], sources);
  chip.memory_bandwidth = read_positive<BytesPerSecond>(reader["memory_bandwidth"], sources);
  chip.multiprocessors = read_count(reader["multiprocessors"], 1 << 16, sources);
  return chip;
}

Node read_node(JsonReader const& reader, std::vector<Source>& sources) {
  reader.expect_keys({"devices", "scale_up", "scale_up_latency", "nics", "nic", "network_latency"});
  Node node;
  node.devices = read_count(reader["devices"], most_devices, sources);
  node.scale_up = read_positive<BytesPerSecond>(reader["scale_up"], sources);
  node.scale_up_latency = read_quantity<Seconds>(reader["scale_up_latency"], sources);
  node.nics = read_count(reader["nics"], node.devices, sources); // more NICs than devices: give their sum per device
  node.nic = read_positive<BytesPerSecond>(reader["nic"], sources);
  node.network_latency = read_quantity<Seconds>(reader["network_latency"], sources);
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
  reader.expect_keys({"name", "chip", "node", "efficiency", "overheads"});
  HardwareProfile profile;
  std::vector<Source>& sources = profile.sources;
  profile.name = reader["name"].text();
  profile.chip = read_chip(reader["chip"], sources);
  profile.node = read_node(reader["node"], sources);
  profile.efficiency = read_efficiencies(reader["efficiency"], sources);

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
  return profile;
}

} // namespace foreplan

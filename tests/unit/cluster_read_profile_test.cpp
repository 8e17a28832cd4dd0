#include "tests/catch.hpp"

#include "cluster/read_profile.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace foreplan;

namespace {

std::string const h100_path = std::string(FOREPLAN_ROOT) + "/hardware_profiles/dgx-h100.json";
std::string const a100_path = std::string(FOREPLAN_ROOT) + "/hardware_profiles/dgx-a100.json";

std::string text_of(std::string const& path) {
  std::ifstream file(path);
  std::stringstream stream;
  stream << file.rdbuf();
  return stream.str();
}

std::size_t count(std::string const& text, std::string const& part) {
  std::size_t times = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++times;
  return times;
}

HardwareProfile read(std::string const& name) {
  return read_profile(std::string(FOREPLAN_ROOT) + "/hardware_profiles/" + name + ".json");
}

HardwareProfile read_changed(std::string const& from, std::string const& to) {
  std::string text = text_of(h100_path);
  text.replace(text.find(from), from.size(), to);
  return read_profile(JsonReader::read_text(text, "h100.json", "foreplan hardware 1"));
}

// n ranks of one node, a ring: base + (n - 1) hops + (n - 1) / n of the bytes at the ring's rate.
double ring_gather_seconds(HardwareProfile const& profile, double bytes) {
  double n = profile.node.devices;
  double rate = profile.node.scale_up.value() * profile.efficiency.scale_up;
  return profile.collective_base.value() + (n - 1) * profile.node.scale_up_latency.value() + (n - 1) / n * bytes / rate;
}

constexpr double mebi = 1 << 20;

} // namespace

TEST_CASE("the profile of a DGX H100") {
  HardwareProfile profile = read_profile(h100_path);
  CHECK(profile.chip.bf16_peak.value() == Approx(989.4e12));
  CHECK(profile.chip.memory_bandwidth.value() == Approx(3.35e12));
  CHECK(profile.node.devices == 8);
  CHECK(profile.node.scale_up.value() == Approx(450e9));
  CHECK(profile.node.nic.value() == Approx(50e9));
  CHECK(profile.efficiency.network == 0.95);
  CHECK(Cluster{profile, 8, {}}.devices() == 64);
}

TEST_CASE("every number of a profile has a source") {
  int profiles = 0;
  for (auto const& entry : std::filesystem::directory_iterator(std::string(FOREPLAN_ROOT) + "/hardware_profiles")) {
    INFO(entry.path().string());
    HardwareProfile const profile = read_profile(entry.path().string());
    ++profiles;
    // No number was passed over: as many sources as the file has values, and those of "kernels" that it leaves at a prior.
    std::string const text = text_of(entry.path().string());
    CHECK(profile.sources.size() >= 5 + 6 + 5 + 5);
    auto const given = std::count_if(profile.sources.begin(), profile.sources.end(),
                                     [](Source const& source) { return source.source != "prior"; });
    CHECK(static_cast<std::size_t>(given) == count(text, "\"value\":"));
    for (Source const& source : profile.sources) {
      INFO(source.key);
      CHECK(source.source.size() > 3);
      CHECK(!source.value.empty());
    }
    CHECK(std::any_of(profile.sources.begin(), profile.sources.end(),
                      [](Source const& source) { return source.key == "efficiency.gemm"; }));
    CHECK(profile.node.host);
    CHECK(profile.fabric);
  }
  CHECK(profiles >= 12);
}

TEST_CASE("the parts of profiles") {
  HardwareProfile const mi300x = read("mi300x-8gpu");
  CHECK(mi300x.node.topology == ScaleUp::full_mesh);
  CHECK(mi300x.chip.load_clock_mhz == 1207);
  CHECK(mi300x.chip.fp8_peak.value() == Approx(2614.9e12));
  CHECK(mi300x.fabric->kind == FabricKind::roce);
  HardwareProfile const rack = read("gb200-nvl72");
  CHECK(rack.node.devices == 72);
  CHECK(rack.node.host->devices_per_link == 2);
  CHECK(rack.chip.fp4_peak.value() == Approx(10e15));
  HardwareProfile const cloud = read("aws-p4de-a100");
  CHECK(cloud.node.nics == 4);
  CHECK(cloud.fabric->kind == FabricKind::efa);
  CHECK(cloud.node.host->drive_read.value() == Approx(3.25e9));
  CHECK(read("dgx-2").node.devices == 16);
  CHECK(read("dgx-2").chip.fp8_peak.value() == 0); // none
  CHECK(read("dgx-h100").fabric->nodes_per_leaf == 32);
  CHECK(read("hgx-h200").chip.memory_bandwidth.value() == Approx(4.8e12));
  CHECK(read("dgx-b200").node.scale_up.value() == Approx(900e9));
  CHECK(read("dgx-b300").node.nic.value() == Approx(100e9));
  CHECK(read("dgx-b300").chip.int8_peak.value() == Approx(153.5e12));
  CHECK(read("gb300-nvl72").node.devices == 72);
  CHECK(read("mi325x-8gpu").chip.memory.value() == Approx(256e9));
  CHECK(read("mi355x-8gpu").node.scale_up.value() == Approx(7 * 76.5e9));
}

// At most 12 fitted parameters a chip, 8 a fabric and library; what no row moved stands at its prior.
TEST_CASE("profiles hold few fitted parameters") {
  for (auto const& entry : std::filesystem::directory_iterator(std::string(FOREPLAN_ROOT) + "/hardware_profiles")) {
    INFO(entry.path().string());
    HardwareProfile const profile = read_profile(entry.path().string());
    REQUIRE(profile.kernels);
    REQUIRE(profile.collectives);
    int of_chip = 0;
    for (std::size_t i = 0; i < kernel::count; ++i) {
      KernelParameter const& parameter = kernel_parameters()[i];
      INFO(parameter.name);
      of_chip += is_moved(*profile.kernels, i) ? 1 : 0;
      CHECK(profile.kernels->priors[i] >= parameter.lowest);
      CHECK(profile.kernels->priors[i] <= parameter.highest);
    }
    CHECK(of_chip <= 12);
    int scale_up = 0, network = 0;
    for (std::size_t i = 0; i < collective::count; ++i)
      (collective_parameters()[i].network ? network : scale_up) += is_moved(*profile.collectives, i) ? 1 : 0;
    CHECK(scale_up <= 8);
    CHECK(network <= 8);
  }
}

// nccl-tests, all_gather; sources in hardware_profiles/*.json.
TEST_CASE("the ring of a node reaches the measured times") {
  HardwareProfile h100 = read_profile(h100_path);
  CHECK(ring_gather_seconds(h100, 16 * mebi) == Approx(68.9e-6).epsilon(0.06));
  CHECK(ring_gather_seconds(h100, 128 * mebi) == Approx(393e-6).epsilon(0.06));
  CHECK(ring_gather_seconds(h100, 512 * mebi) == Approx(1402e-6).epsilon(0.06));
  HardwareProfile a100 = read_profile(a100_path);
  CHECK(ring_gather_seconds(a100, 16 * mebi) == Approx(135e-6).epsilon(0.12));
  CHECK(ring_gather_seconds(a100, 128 * mebi) == Approx(660e-6).epsilon(0.12));
  CHECK(ring_gather_seconds(a100, 512 * mebi) == Approx(2288e-6).epsilon(0.12));
  HardwareProfile h200 = read("hgx-h200");
  CHECK(ring_gather_seconds(h200, 16 * mebi) == Approx(66.9e-6).epsilon(0.08));
  CHECK(ring_gather_seconds(h200, 128 * mebi) == Approx(380e-6).epsilon(0.08));
  CHECK(ring_gather_seconds(h200, 512 * mebi) == Approx(1395e-6).epsilon(0.08));
  HardwareProfile b200 = read("dgx-b200");
  CHECK(ring_gather_seconds(b200, 128 * mebi) == Approx(207e-6).epsilon(0.04));
  CHECK(ring_gather_seconds(b200, 512 * mebi) == Approx(761e-6).epsilon(0.04));
}

TEST_CASE("a profile that cannot be is refused") {
  auto refused = [](std::string const& from, std::string const& to, std::string const& part) {
    try {
      (void)read_changed(from, to);
    } catch (InputError const& error) {
      INFO(error.what());
      CHECK(std::string(error.what()).find(part) != std::string::npos);
      return;
    }
    FAIL(to << " was accepted");
  };
  refused("3350 GB/s", "0 GB/s", "chip.memory_bandwidth.value: \"0 GB/s\" must be more than 0");
  refused("3350 GB/s", "3350 GB", "has the unknown unit \"GB\"");
  refused("\"kind\": \"datasheet\"", "\"kind\": \"guess\"", "chip.bf16_peak.kind: \"guess\" is unknown");
  refused("\"value\": 0.8", "\"value\": 1.2", "efficiency.gemm.value: 1.2 must be a number from 0.001 to 1");
  refused("\"gemm\"", "\"gem\"", "did you mean \"gemm\"?");
  refused("\"switched\"", "\"switch\"", "node.topology: \"switch\" is unknown; did you mean \"switched\"?");
  refused("\"infiniband\"", "\"ethernet\"", "valid: infiniband, roce, efa");
  refused("\"drives\": {\"value\": 8", "\"drives\": {\"value\": -8", "must be a whole number from 1");
  refused("\"nodes_per_leaf\"", "\"nodes_a_leaf\"", "did you mean \"nodes_per_leaf\"?");
  refused("\"oversubscription\": {\"value\": 1,", "\"oversubscription\": {\"value\": 0.5,", "must be a number from 1");
  refused("\"1.2 GB\"", "\"90 GB\"", "overheads.reserved.value: \"90 GB\" must be less than chip.memory");
  refused("{\"value\": 132, \"kind\": \"datasheet\",", "{\"value\": 132,", "chip.multiprocessors.kind: is missing");
}

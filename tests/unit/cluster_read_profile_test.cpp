#include "tests/catch.hpp"

#include "cluster/read_profile.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

using namespace foreplan;

namespace {

std::string const h100_path = std::string(FOREPLAN_ROOT) + "/hardware_profiles/dgx-h100.json";
std::string const a100_path = std::string(FOREPLAN_ROOT) + "/hardware_profiles/dgx-a100.json";

HardwareProfile read_changed(std::string const& from, std::string const& to) {
  std::ifstream file(h100_path);
  std::stringstream stream;
  stream << file.rdbuf();
  std::string text = stream.str();
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
  for (std::string const& path : {h100_path, a100_path}) {
    HardwareProfile profile = read_profile(path);
    CHECK(profile.sources.size() == 5 + 6 + 5 + 5);
    for (Source const& source : profile.sources)
      CHECK(source.source.size() > 3);
    CHECK(std::any_of(profile.sources.begin(), profile.sources.end(), [](Source const& source) {
      return source.key == "efficiency.gemm" && source.kind == Evidence::fitted;
    }));
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
  refused("\"1.2 GB\"", "\"90 GB\"", "overheads.reserved.value: \"90 GB\" must be less than chip.memory");
  refused("{\"value\": 132, \"kind\": \"datasheet\",", "{\"value\": 132,", "chip.multiprocessors.kind: is missing");
}

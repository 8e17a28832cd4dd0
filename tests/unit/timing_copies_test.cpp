#include "cluster/read_profile.hpp"
#include "tests/catch.hpp"
#include "timing/copies.hpp"
#include "timing/kernels/cpu_adam.hpp"

#include <algorithm>
#include <cmath>

using namespace foreplan;

namespace {

using Kind = Link::Kind;

// 2 nodes of 4 devices, 2 sockets, 2 devices behind each PCIe switch, 2 drives.
Cluster small() {
  Cluster cluster;
  cluster.nodes = 2;
  cluster.profile.node.devices = 4;
  cluster.profile.kernel_fixed = Seconds(1);
  cluster.profile.chip.memory_bandwidth = BytesPerSecond(1000);
  Host host;
  host.sockets = 2;
  host.cores = 8;
  host.memory_bandwidth = BytesPerSecond(100);
  host.core_bandwidth = BytesPerSecond(20);
  host.link = BytesPerSecond(25);
  host.devices_per_link = 2;
  host.drives = 2;
  host.drive_read = BytesPerSecond(6);
  host.drive_write = BytesPerSecond(3);
  host.drive_latency = Seconds(2);
  cluster.profile.node.host = host;
  return cluster;
}

Cluster of_profile(std::string const& name) {
  return {read_profile(std::string(FOREPLAN_ROOT) + "/hardware_profiles/" + name), 1, {}};
}

double adam_seconds(Cluster const& cluster, CpuAdam const& adam) {
  return alone_seconds(cpu_adam_demand(cluster, adam)).value();
}

} // namespace

TEST_CASE("a copy passes the device's link, what it shares with its neighbour, and its socket's memory", "[copies]") {
  Cluster cluster = small();
  // Device 6 is the third of node 1: behind that node's second switch, on its second socket.
  CHECK(copy_links(cluster, Rank(6), CopyPath::device_to_host) ==
        std::vector<Link>{{Kind::host_out, 6}, {Kind::host_shared_out, 3}, {Kind::host_memory, 3}});
  CHECK(copy_links(cluster, Rank(6), CopyPath::host_to_device) ==
        std::vector<Link>{{Kind::host_in, 6}, {Kind::host_shared_in, 3}, {Kind::host_memory, 3}});
  cluster.profile.node.host->half_duplex = true; // both directions share one way
  CHECK(copy_links(cluster, Rank(6), CopyPath::host_to_device)[1] == Link{Kind::host_shared_out, 3});
  cluster.profile.node.host->half_duplex = false;
  cluster.profile.node.host->devices_per_link = 1;
  CHECK(copy_links(cluster, Rank(6), CopyPath::device_to_host) ==
        std::vector<Link>{{Kind::host_out, 6}, {Kind::host_memory, 3}});
  // Without a rate of its own the shared way is as wide as one link; 100 B/s of memory over two sockets.
  CHECK(capacity(cluster, {Kind::host_shared_in, 0}).value() == 25);
  CHECK(capacity(cluster, {Kind::host_memory, 3}).value() == 50);
  CHECK(describe(cluster, {Kind::host_memory, 3}) == "host memory 3");
}

TEST_CASE("drives are shared by the devices of a system", "[copies]") {
  Cluster cluster = small();
  CHECK(copy_links(cluster, Rank(6), CopyPath::disk_to_host) ==
        std::vector<Link>{{Kind::drive_read, 1}, {Kind::host_memory, 3}});
  CHECK(capacity(cluster, {Kind::drive_read, 1}).value() == 12); // 2 drives
  cluster.profile.node.host->systems = 2;
  CHECK(copy_links(cluster, Rank(6), CopyPath::host_to_disk) ==
        std::vector<Link>{{Kind::host_memory, 3}, {Kind::drive_write, 3}});
  CHECK(capacity(cluster, {Kind::drive_write, 3}).value() == 3); // one each
}

TEST_CASE("a copy alone takes its latency and its bytes over the narrowest link", "[copies]") {
  Cluster const cluster = small();
  // 1 s + 100 / 25.
  CHECK(alone_seconds(copy_demand(cluster, CopyPath::device_to_host, Bytes(100))).value() == Approx(5));
  CHECK(copy_demand(cluster, CopyPath::device_to_host, Bytes(100)).memory_bandwidth_share ==
        Approx(0.02)); // 20 of 1000
  // Enough requests: 2 s + 120 / 12. One request of 12 bytes at a time: 12 / (2 + 12 / 6) = 3 B/s.
  FileRequests const many{Bytes(12), 100}, one{Bytes(12), 1};
  CHECK(alone_seconds(copy_demand(cluster, CopyPath::disk_to_host, Bytes(120), many)).value() == Approx(12));
  CHECK(alone_seconds(copy_demand(cluster, CopyPath::disk_to_host, Bytes(120), one)).value() == Approx(42));
  CHECK(alone_seconds(copy_demand(cluster, CopyPath::host_to_disk, Bytes(120), many)).value() == Approx(22));
}

TEST_CASE("a profile without host or drives is refused", "[copies]") {
  Cluster cluster = small();
  cluster.profile.node.host->drives = 0;
  CHECK_THROWS(copy_demand(cluster, CopyPath::disk_to_host, Bytes(1)));
  CHECK_NOTHROW(copy_demand(cluster, CopyPath::host_to_device, Bytes(1)));
  cluster.profile.node.host.reset();
  CHECK_THROWS(copy_demand(cluster, CopyPath::host_to_device, Bytes(1)));
  CHECK_THROWS(cpu_adam_demand(cluster, {.parameters = 1}));
}

TEST_CASE("CPU Adam runs at the rate of its cores, or of its socket's memory", "[copies]") {
  Cluster const cluster = small();
  // 10 parameters * (24 + 4 + 2) bytes over 2 cores * 20 B/s, and over 50 B/s.
  CHECK(adam_seconds(cluster, {.parameters = 10, .cores = 2}) == Approx(300.0 / 40));
  CHECK(adam_seconds(cluster, {.parameters = 10, .cores = 4}) == Approx(300.0 / 50));
}

TEST_CASE("published times of CPU Adam are met within 15 %", "[copies]") {
  struct Point {
    double billions;
    double seconds;
  };
  auto check = [](Cluster const& cluster, CpuAdam adam, Point point) {
    adam.parameters = std::llround(point.billions * 1e9);
    INFO(cluster.profile.name << ", " << point.billions << " B parameters");
    CHECK(adam_seconds(cluster, adam) == Approx(point.seconds).epsilon(0.15));
  };
  // ZeRO-Offload, arXiv 2101.06840, table 4: DGX-2, gradients in 16 bits. The profile has one rate from these.
  Cluster const dgx2 = of_profile("dgx-2.json");
  for (Point const point : {Point{1, 0.22}, Point{4, 1.03}, Point{10, 2.57}})
    check(dgx2, {.gradient_bytes = 2, .cores = 24}, point);
  // SuperOffload (DeepSpeed blog): DeepSpeed's CPU Adam on a Grace of 72 cores, gradients in 32 bits. GB200's are Graces.
  Cluster const grace = of_profile("gb200-nvl72.json");
  for (Point const point : {Point{1, 0.098}, Point{2, 0.198}, Point{4, 0.393}, Point{8, 0.769}})
    check(grace, {.gradient_bytes = 4, .cores = 72}, point);
}

TEST_CASE("published rates of copies over C2C are met within 10 %", "[copies]") {
  // nvbandwidth of a GB300 tray (OCI): one GPU 211 GB/s in, 193 out; all 4 at once 750 and 740 over two Graces. DGX
  // Station (stas00): both directions at once 175 + 172.
  Cluster const cluster = of_profile("gb300-nvl72.json");
  double const gb = 1e9;
  double const out = 1e10 / alone_seconds(copy_demand(cluster, CopyPath::device_to_host, Bytes(1e10))).value();
  CHECK(out == Approx(193 * gb).epsilon(0.1));
  CHECK(out == Approx(211 * gb).epsilon(0.1));
  double narrowest = 1e30;
  for (Link const link : copy_links(cluster, Rank(0), CopyPath::host_to_device))
    if (link.kind != Kind::host_in)
      narrowest = std::min(narrowest, capacity(cluster, link).value());
  CHECK(2 * narrowest == Approx(750 * gb).epsilon(0.1));
  CHECK(2 * narrowest == Approx(740 * gb).epsilon(0.1));
  CHECK(narrowest == Approx((175 + 172) * gb).epsilon(0.1));
}

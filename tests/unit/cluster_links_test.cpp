#include "cluster/links.hpp"
#include "tests/catch.hpp"

using namespace foreplan;

namespace {

using Kind = Link::Kind;

// Two nodes' NICs hang from one leaf; devices 0 and 1 use NIC 0, 2 and 3 NIC 1.
Cluster small() {
  Cluster cluster;
  cluster.nodes = 4;
  cluster.profile.node.devices = 4;
  cluster.profile.node.nics = 2;
  cluster.profile.node.scale_up = BytesPerSecond(300);
  cluster.profile.node.nic = BytesPerSecond(10);
  cluster.profile.efficiency.scale_up = 0.5;
  cluster.profile.efficiency.network = 0.8;
  cluster.profile.fabric = Fabric{FabricKind::infiniband, false, 2, 1, {}, {}, {}};
  return cluster;
}

} // namespace

TEST_CASE("inside a switched node a pair has its ports, in a mesh one link") {
  Cluster cluster = small();
  CHECK(path(cluster, Rank(5), Rank(6)) == std::vector<Link>{{Kind::scale_up_out, 5}, {Kind::scale_up_in, 6}});
  CHECK(capacity(cluster, {Kind::scale_up_out, 5}).value() == 150);
  cluster.profile.node.topology = ScaleUp::full_mesh;
  CHECK(path(cluster, Rank(5), Rank(6)) == std::vector<Link>{{Kind::mesh, 5 * 4 + 2}}); // 6 is the third of its node
  CHECK(capacity(cluster, {Kind::mesh, 22}).value() == 50);                             // 300 * 0.5 over 3 links
  CHECK(path(cluster, Rank(6), Rank(5)) == std::vector<Link>{{Kind::mesh, 6 * 4 + 1}}); // the other direction
  CHECK(describe(cluster, {Kind::mesh, 22}) == "mesh link of device 5 to 6");
  cluster.exceptions.push_back({Rank(6), 1, 1, 0.5});
  CHECK(capacity(cluster, {Kind::mesh, 22}).value() == 25);
  CHECK(capacity(cluster, {Kind::mesh, 5 * 4}).value() == 50);
}

TEST_CASE("between nodes each end uses its own NIC") {
  Cluster const cluster = small();
  CHECK(path(cluster, Rank(0), Rank(15)) == std::vector<Link>{{Kind::nic_out, 0}, {Kind::nic_in, 7}});
  CHECK(capacity(cluster, {Kind::nic_out, 0}).value() == 8);
  CHECK(describe(cluster, {Kind::nic_in, 7}) == "NIC in 1 of node 3");
}

TEST_CASE("what leaves an oversubscribed leaf shares its links to the spines") {
  Cluster cluster = small();
  CHECK(!leaves_contend(cluster));
  cluster.profile.fabric->oversubscription = 2;
  CHECK(leaves_contend(cluster));
  CHECK(path(cluster, Rank(0), Rank(4)).size() == 2); // nodes 0 and 1 hang from leaf 0
  CHECK(path(cluster, Rank(0), Rank(15)) ==
        std::vector<Link>{{Kind::nic_out, 0}, {Kind::leaf_out, 0}, {Kind::leaf_in, 1}, {Kind::nic_in, 7}});
  CHECK(capacity(cluster, {Kind::leaf_out, 0}).value() == 16); // 2 nodes * 2 NICs * 10 * 0.8 / 2

  // Rails: NIC i of the nodes 0 and 1 on leaf i, of 2 and 3 on leaf 2 + i. Half as many NICs below a leaf.
  cluster.profile.fabric->rails = true;
  CHECK(leaf_of(cluster, 0) == 0);
  CHECK(leaf_of(cluster, 3) == 1);
  CHECK(leaf_of(cluster, 7) == 3);
  CHECK(path(cluster, Rank(0), Rank(4)).size() == 2);
  CHECK(path(cluster, Rank(0), Rank(6)).size() == 4); // another rail
  CHECK(capacity(cluster, {Kind::leaf_out, 0}).value() == 8);
}

#include "timing/collectives/curve.hpp"

#include "cluster/links.hpp"
#include "tests/catch.hpp"
#include "timing/collectives/demand.hpp"
#include "timing/collectives/explain.hpp"

#include <cmath>
#include <map>
#include <random>

using namespace foreplan;

namespace {

constexpr double us = 1e-6;

// Round numbers: hop 1 us LL, 4 us Simple; rings at 300 GB/s in a node of 400 GB/s ports and at 45 of 50 GB/s a NIC.
CollectiveValues round_values() {
  CollectiveValues values{};
  values[collective::base] = 6.6 * us;
  values[collective::hop] = 1 * us;
  values[collective::hop_simple] = 4 * us;
  values[collective::ring] = 0.75;
  values[collective::point_to_point] = 0.6;
  values[collective::multicast] = 0.5;
  values[collective::own_share] = 2;
  values[collective::ramp] = 0;
  values[collective::network] = 0.9;
  values[collective::network_hop] = 3 * us;
  values[collective::network_hop_simple] = 14 * us;
  values[collective::multicast_tree] = 0.9;
  values[collective::network_all_to_all] = 0.8;
  return values;
}

GroupShape shape(int members, int nodes = 1) {
  int const on_a_node = members / nodes;
  return {.members = members,
          .nodes = nodes,
          .on_a_node = on_a_node,
          .node_devices = std::max(8, on_a_node),
          .scale_up = 400e9,
          .network = 50e9 * on_a_node};
}

CollectiveCurve curve(CollectiveOp op, GroupShape const& where, CollectiveValues const& values,
                      ScaleUp topology = ScaleUp::switched) {
  CollectiveLibrary const library = topology == ScaleUp::full_mesh ? CollectiveLibrary::rccl : CollectiveLibrary::nccl;
  return collective_curve(op, where, library, topology, values);
}

CollectiveLine const* line(CollectiveCurve const& curve, CollectiveAlgorithm algorithm, Protocol protocol) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(curve.line_count); ++i)
    if (curve.lines[i].algorithm == algorithm && curve.lines[i].protocol == protocol)
      return &curve.lines[i];
  return nullptr;
}

double seconds(CollectiveOp op, GroupShape const& where, CollectiveValues const& values, double bytes) {
  return collective_time(curve(op, where, values), bytes).seconds;
}

constexpr CollectiveOp all_ops[] = {CollectiveOp::all_reduce, CollectiveOp::all_gather, CollectiveOp::reduce_scatter,
                                    CollectiveOp::all_to_all, CollectiveOp::broadcast,  CollectiveOp::send_receive};

// Values as fits find them: within a factor of two of the priors, with what physics asks: a rank handles its own part
// no slower than the wire brings the others'.
template <class Random>
CollectiveValues random_values(Random& random) {
  std::uniform_real_distribution<double> factor(0.6, 1.2);
  CollectiveValues values = collective_priors(CollectiveLibrary::nccl);
  for (double& value : values)
    value *= factor(random);
  values[collective::hop_simple] = std::max(values[collective::hop_simple], values[collective::hop]);
  return values;
}

template <class Random>
double random_bytes(Random& random) {
  return std::exp2(std::uniform_real_distribution<double>(0, 35)(random));
}

template <class Random, class T, std::size_t N>
T one_of(Random& random, T const (&values)[N]) {
  return values[std::uniform_int_distribution<std::size_t>(0, N - 1)(random)];
}

template <class Random>
GroupShape random_shape(Random& random) {
  int const nodes = one_of(random, {1, 1, 2, 3, 4, 8, 16, 64});
  int const on_a_node = nodes == 1 ? one_of(random, {2, 3, 4, 5, 6, 7, 8, 16, 72}) : one_of(random, {1, 2, 4, 8});
  return shape(nodes * on_a_node, nodes);
}

} // namespace

TEST_CASE("Ring all-reduce over eight devices of a node: 14 steps, 7/4 of the buffer on each wire", "[collectives]") {
  CollectiveCurve const all_reduce = curve(CollectiveOp::all_reduce, shape(8), round_values());
  // LL: 6.6 + 14 * 1 us.
  CHECK(line(all_reduce, CollectiveAlgorithm::ring, Protocol::ll)->latency == Approx(20.6 * us));
  // Simple: 8.4 + 14 * 4 us; 1.75 / 300 GB/s + 1/8 at 800 GB/s.
  CollectiveLine const& simple = *line(all_reduce, CollectiveAlgorithm::ring, Protocol::simple);
  CHECK(simple.latency == Approx(64.4 * us));
  CHECK(simple.per_byte == Approx(1.75 / 300e9 + 1 / (8 * 800e9)));
  // LL: 0.5 * 300, but at most 0.3 * 400 = 120 GB/s.
  CHECK(line(all_reduce, CollectiveAlgorithm::ring, Protocol::ll)->per_byte == Approx(1.75 / 120e9 + 1 / (8 * 800e9)));
}

TEST_CASE("Across nodes as many steps cross as nodes have borders", "[collectives]") {
  // Gather over 4 nodes of 8: 31 steps, 3 of them between nodes: 6.6 + 28 * 1 + 3 * 3 us. 400 GB/s of NICs at 0.9 bear the
  // rings' 300 GB/s.
  CollectiveCurve const gather = curve(CollectiveOp::all_gather, shape(32, 4), round_values());
  CHECK(line(gather, CollectiveAlgorithm::ring, Protocol::ll)->latency == Approx(43.6 * us));
  CHECK(line(gather, CollectiveAlgorithm::ring, Protocol::simple)->per_byte ==
        Approx(31.0 / 32 / 300e9 + 1 / (32 * 800e9)));
  // One member a node: its NIC at 0.9 * 50 GB/s.
  CollectiveCurve const thin = curve(CollectiveOp::all_gather, shape(4, 4), round_values());
  CHECK(line(thin, CollectiveAlgorithm::ring, Protocol::simple)->per_byte == Approx(0.75 / 45e9 + 1 / (4 * 800e9)));
}

TEST_CASE("A tree over two nodes sends the buffer once out of each, over more twice", "[collectives]") {
  CollectiveValues values = round_values();
  values[collective::multicast] = 1; // 400 GB/s: more than NICs bear
  values[collective::multicast_tree] = 1;
  values[collective::network] = 0.5; // 200 GB/s out of a node
  auto const per_byte = [&](int nodes) {
    return line(curve(CollectiveOp::all_reduce, shape(8 * nodes, nodes), values), CollectiveAlgorithm::nvls_tree,
                Protocol::simple)
        ->per_byte;
  };
  CHECK(per_byte(2) == Approx(1 / 200e9));
  CHECK(per_byte(4) == Approx(2 / 200e9));
}

TEST_CASE("In a mesh a pair has one link, eight devices seven, and paths over nodes eight", "[collectives]") {
  CollectiveValues values = round_values();
  values[collective::network] = 10;    // not the limit
  values[collective::own_share] = 1e9; // nor this
  auto const bus_rate = [&](int members, int nodes) {
    double const sent = 2.0 * (members - 1) / members;
    return sent / line(curve(CollectiveOp::all_reduce, shape(members, nodes), values, ScaleUp::full_mesh),
                       CollectiveAlgorithm::ring, Protocol::simple)
                      ->per_byte;
  };
  CHECK(bus_rate(2, 1) == Approx(300e9 / 7));
  CHECK(bus_rate(8, 1) == Approx(300e9));
  CHECK(bus_rate(16, 2) == Approx(300e9 * 8 / 7));
}

TEST_CASE("All-to-all over nodes takes the longer of port and NIC", "[collectives]") {
  // 16 devices of 2 nodes: 8 of 16 parts by the own NIC at 40 GB/s, 7 of 16 through the port at 240 GB/s.
  CollectiveCurve const curve_16 = curve(CollectiveOp::all_to_all, shape(16, 2), round_values());
  CHECK(line(curve_16, CollectiveAlgorithm::direct, Protocol::simple)->per_byte == Approx(0.5 / 40e9));
}

TEST_CASE("Time never falls with bytes, and doubling them never more than doubles what stands above the latency",
          "[collectives]") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    CollectiveOp const op = one_of(random, all_ops);
    CollectiveCurve const c = curve(op, random_shape(random), random_values(random));
    double const bytes = random_bytes(random);
    CollectiveTime const once = collective_time(c, bytes), twice = collective_time(c, 2 * bytes);
    REQUIRE(twice.seconds >= once.seconds);
    REQUIRE(twice.seconds - twice.latency <= 2 * (once.seconds - once.latency) * (1 + 1e-12));
    REQUIRE(once.latency == twice.latency);
  }
}

TEST_CASE("Another algorithm or protocol never makes the time jump", "[collectives]") {
  std::mt19937_64 random(2);
  int switches = 0;
  for (int i = 0; i < 20000; ++i) {
    CollectiveCurve const c = curve(one_of(random, all_ops), random_shape(random), random_values(random));
    double const bytes = random_bytes(random);
    CollectiveTime const before = collective_time(c, bytes), after = collective_time(c, bytes * 1.001);
    switches += before.algorithm != after.algorithm || before.protocol != after.protocol ? 1 : 0;
    REQUIRE(after.seconds <= before.seconds * 1.001 * (1 + 1e-12)); // concave from a positive latency
  }
  CHECK(switches > 0);
}

TEST_CASE("A bigger group is never faster at the same bytes a rank on the same links", "[collectives]") {
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    CollectiveOp const op = one_of(random, all_ops);
    CollectiveValues const values = random_values(random);
    double const of_a_rank = random_bytes(random);
    bool const grows_nodes = std::uniform_int_distribution<int>(0, 1)(random) == 1;
    int const on_a_node = one_of(random, {1, 2, 4, 8});
    int const nodes = one_of(random, {2, 3, 4, 8, 16});
    int const members = one_of(random, {2, 3, 4, 5, 6, 7, 8, 32});
    GroupShape const small = grows_nodes ? shape(on_a_node * nodes, nodes) : shape(members);
    GroupShape const large = grows_nodes ? shape(on_a_node * (nodes + 1), nodes + 1) : shape(members + 1);
    auto const size = [&](GroupShape const& where) {
      bool const gathers = op == CollectiveOp::all_gather || op == CollectiveOp::reduce_scatter;
      return gathers ? of_a_rank * where.members : of_a_rank;
    };
    INFO(to_string(op) << " " << of_a_rank << " bytes, " << small.members << " on " << small.nodes << " nodes");
    REQUIRE(seconds(op, large, values, size(large)) >= seconds(op, small, values, size(small)) * (1 - 1e-12));
  }
}

TEST_CASE("Measured curves correct their own group fully, a near one in part, and never without bound",
          "[collectives]") {
  CollectiveModel model{
      .library = CollectiveLibrary::nccl,
      .topology = ScaleUp::switched,
      .values = round_values(),
      .residuals = {{.op = CollectiveOp::all_gather, .members = 8, .nodes = 1, .weight = 1, .octaves = {}}},
      .band = 0};
  for (int octave = first_octave; octave < first_octave + octave_count; ++octave)
    model.residuals[0].octaves.push_back({octave, 0.2});
  double const bytes = std::exp2(24);
  auto const factor = [&](CollectiveOp op, GroupShape const& where) {
    return collective_time(op, where, model, bytes).seconds / seconds(op, where, model.values, bytes);
  };
  // Weights of the octave itself, of its neighbours (0.2494 and 0.0039 each) against 0.2 of doubt: 1.5066 / 1.7066.
  CHECK(std::log(factor(CollectiveOp::all_gather, shape(8))) == Approx(0.2 * 1.5066 / 1.7066).epsilon(1e-3));
  double const near = std::log(factor(CollectiveOp::all_gather, shape(6)));
  CHECK(near > 0);
  CHECK(near < std::log(factor(CollectiveOp::all_gather, shape(8))));
  CHECK(factor(CollectiveOp::all_gather, shape(16, 2)) == Approx(1)); // of nodes they say nothing
  for (CollectiveResidual::Octave& octave : model.residuals[0].octaves)
    octave.log_ratio = 3;
  CHECK(std::log(factor(CollectiveOp::all_gather, shape(8))) == Approx(most_correction));
  // One size alone and the whole curve say the same.
  CollectiveCurve const whole = collective_curve(CollectiveOp::all_gather, shape(6), model);
  CHECK(collective_time(whole, 3e6).seconds == collective_time(CollectiveOp::all_gather, shape(6), model, 3e6).seconds);
}

// ------------------------------------------------------------------------------------------------------------- demands

namespace {

Cluster cluster_of(int nodes, CollectiveValues const& values) {
  Cluster cluster;
  cluster.nodes = nodes;
  HardwareProfile& profile = cluster.profile;
  profile.chip.memory_bandwidth = BytesPerSecond(3e12);
  profile.chip.multiprocessors = 100;
  profile.collective_multiprocessors = 10;
  profile.node.devices = 8;
  profile.node.nics = 4;
  profile.node.scale_up = BytesPerSecond(400e9);
  profile.node.nic = BytesPerSecond(50e9);
  profile.efficiency.scale_up = 0.5;
  profile.efficiency.network = 0.5;
  profile.issue = Seconds(5e-6);
  profile.collectives = CollectiveModel{.library = CollectiveLibrary::nccl,
                                        .topology = ScaleUp::switched,
                                        .values = values,
                                        .residuals = {},
                                        .band = 0.1};
  return cluster;
}

// Every `stride`-th device of the first `nodes` nodes.
std::vector<Rank> ranks(int nodes, int stride) {
  std::vector<Rank> result;
  for (int device = 0; device < 8 * nodes; device += stride)
    result.emplace_back(device);
  return result;
}

// What the group's links allow, as the engine finds it.
double unit_rate(Cluster const& cluster, GroupLayout const& layout, std::vector<Rank> const& members) {
  std::map<Link, int> uses;
  int const on_a_node = layout.members / layout.nodes;
  for (std::size_t i = 0; i < members.size(); ++i)
    for (LinkShare const& share : ring_links(cluster, layout, members[i], static_cast<int>(i) % on_a_node, on_a_node))
      uses[share.link] += share.multiplicity;
  double rate = 1e30;
  for (auto const& [link, multiplicity] : uses)
    rate = std::min(rate, capacity(cluster, link).value() / multiplicity);
  return rate;
}

} // namespace

TEST_CASE("A demand alone on its links takes exactly its modelled time", "[collectives]") {
  std::mt19937_64 random(4);
  constexpr OpKind kinds[] = {OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter};
  for (int i = 0; i < 5000; ++i) {
    int const nodes = one_of(random, {1, 2, 3, 8});
    int const stride = one_of(random, {1, 2, 4}) * (nodes > 1 ? one_of(random, {1, 2}) : 1);
    Cluster const cluster = cluster_of(nodes, random_values(random));
    std::vector<Rank> const members = ranks(nodes, stride);
    GroupLayout const layout = layout_of(cluster, members);
    Op op;
    op.kind = one_of(random, kinds);
    Tensor whole;
    whole.dtype = DType::fp32;
    whole.shape = {static_cast<std::int64_t>(random_bytes(random)) / 4 + 1};
    Operands operands;
    operands.reads = {&whole};
    operands.writes = {&whole};
    double const rate = unit_rate(cluster, layout, members);
    Demand const demand = collective_demand(op, operands, cluster, layout, BytesPerSecond(rate));
    Phase const& phase = std::get<TransferDemand>(demand.device).phases.at(0);
    Flow const& flow = phase.flows.at(0);
    double const alone = phase.latency.value() + flow.bytes.value() / std::min(flow.rate_cap.value(), rate);
    CollectiveOp const what = op.kind == OpKind::all_reduce   ? CollectiveOp::all_reduce
                              : op.kind == OpKind::all_gather ? CollectiveOp::all_gather
                                                              : CollectiveOp::reduce_scatter;
    double const modelled = collective_time(what, shape_of(cluster, layout), *cluster.profile.collectives,
                                            4.0 * static_cast<double>(whole.shape[0]))
                                .seconds;
    REQUIRE(alone == Approx(modelled).epsilon(1e-9));
  }
}

TEST_CASE("A layout knows how many NICs its members of a node use", "[collectives]") {
  Cluster const cluster = cluster_of(2, round_values()); // devices 0 and 1 share a NIC
  CHECK(layout_of(cluster, ranks(2, 1)).fewest_nics == 4);
  CHECK(layout_of(cluster, ranks(2, 4)).fewest_nics == 2);
  CHECK(layout_of(cluster, std::vector{Rank(0), Rank(1), Rank(8), Rank(9)}).fewest_nics == 1);
  // Two members on one NIC: 50 GB/s out of the node.
  CHECK(shape_of(cluster, layout_of(cluster, std::vector{Rank(0), Rank(1), Rank(8), Rank(9)})).network == 50e9);
}

TEST_CASE("An explanation names choice, formula, parameters and measurements", "[collectives]") {
  CollectiveModel const model{
      .library = CollectiveLibrary::nccl,
      .topology = ScaleUp::switched,
      .values = round_values(),
      .residuals = {{.op = CollectiveOp::all_gather, .members = 4, .nodes = 1, .weight = 1, .octaves = {{24, 0.1}}}},
      .band = 0.07};
  std::string const text = explain_collective(CollectiveOp::all_gather, shape(8), model, 1e9);
  INFO(text);
  // Simple: 8.4 + 7 * 4 us; 0.875 / 300 GB/s + 1 / (8 * 800 GB/s) = 1 / 325.4 GB/s; 36.4 + 3073 us.
  CHECK(text.find("ring Simple") != std::string::npos);
  CHECK(text.find("36.4 us + bytes / 325.4 GB/s") != std::string::npos);
  CHECK(text.find("own_share 2") != std::string::npos);
  CHECK(text.find("multicast") == std::string::npos);
  CHECK(text.find("all_gather on 4 ranks of 1 node") != std::string::npos);
  CHECK(text.find("7.0 %") != std::string::npos);
}

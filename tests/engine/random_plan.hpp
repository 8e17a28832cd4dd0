// Random legal plans of small models, and random clusters for them: equal nodes or with slow devices and NICs.
#pragma once

#include "cluster/cluster.hpp"
#include "model/model.hpp"
#include "plan/plan.hpp"
#include "plan/plan_checker.hpp"

#include <random>

namespace foreplan::testing {

inline Model llama(int layers) {
  Model model;
  model.name = "llama";
  model.layers = layers;
  model.hidden = 4096;
  model.heads = 32;
  model.kv_heads = 16;
  model.head_size = 128;
  model.ffn = 14336;
  model.vocabulary = 32768;
  model.max_positions = 8192;
  return model;
}

// Round numbers; what matters is that all parts of the profile are there.
inline HardwareProfile test_profile(int devices, int nics) {
  HardwareProfile profile;
  profile.name = "test node";
  profile.chip.name = "test chip";
  profile.chip.bf16_peak = FlopsPerSecond(1e15);
  profile.chip.fp32_peak = FlopsPerSecond(1e14);
  profile.chip.memory = Bytes(80e9);
  profile.chip.memory_bandwidth = BytesPerSecond(3e12);
  profile.chip.multiprocessors = 100;
  profile.node.devices = devices;
  profile.node.scale_up = BytesPerSecond(400e9);
  profile.node.scale_up_latency = Seconds(2e-6);
  profile.node.nics = nics;
  profile.node.nic = BytesPerSecond(50e9);
  profile.node.network_latency = Seconds(10e-6);
  profile.efficiency = {.gemm = 0.8, .attention = 0.5, .memory_bound = 0.8, .scale_up = 0.8, .network = 0.9};
  profile.kernel_fixed = Seconds(2e-6);
  profile.issue = Seconds(5e-6);
  profile.collective_base = Seconds(8e-6);
  profile.collective_multiprocessors = 10;
  profile.reserved = Bytes(1e9);
  return profile;
}

template <class Random>
int one_of(Random& random, std::initializer_list<int> values) {
  return values.begin()[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random)];
}

template <class Random>
Plan random_plan(Random& random, Model const& model, int most_ranks) {
  for (;;) {
    Plan plan;
    plan.tp = one_of(random, {1, 2, 4, 8});
    plan.pp = one_of(random, {1, 2, 3, 4});
    plan.dp = one_of(random, {1, 2, 3, 4, 6, 8});
    plan.sequence_parallel = one_of(random, {0, 1}) == 1;
    plan.zero_stage = one_of(random, {0, 1, 2, 3});
    plan.zero_group = plan.dp % 2 == 0 && plan.zero_stage > 0 ? one_of(random, {0, 2}) : 0;
    plan.schedule = static_cast<Schedule>(one_of(random, {0, 1, 2}));
    plan.chunks = plan.schedule == Schedule::interleaved ? 2 : 1;
    plan.p2p = plan.schedule == Schedule::interleaved || one_of(random, {0, 1}) == 1 ? P2p::overlapped
                                                                                     : P2p::synchronous;
    plan.recompute = static_cast<Recompute>(one_of(random, {0, 1, 2}));
    plan.attention = static_cast<Attention>(one_of(random, {0, 1}));
    plan.sequence_length = 1024;
    plan.micro_batch = one_of(random, {1, 2});
    plan.global_batch = plan.micro_batch * plan.dp * plan.pp * one_of(random, {1, 2, 3});
    plan.bucket_elements = one_of(random, {0, 100'000'000, 400'000'000});
    plan.gradient_dtype = one_of(random, {0, 1}) == 1 ? DType::bf16 : DType::fp32;
    plan.reduction_dtype = one_of(random, {0, 1}) == 1 ? DType::bf16 : DType::fp32;
    // A third of the plans with tp hide its communication.
    if (plan.tp > 1 && plan.micro_batches() % 3 == 0) {
      plan.tp_overlap = plan.sequence_parallel;
      plan.domino_slices = plan.sequence_parallel ? 1 : static_cast<int>(plan.micro_batch);
      plan.domino = static_cast<Domino>(plan.domino_slices > 1 && plan.pp == 1 ? plan.zero_stage % 3 : 0);
    }
    if (plan.world_size() <= most_ranks && check(model, plan).empty())
      return plan;
  }
}

template <class Random>
Cluster random_cluster(Random& random, Plan const& plan, bool homogeneous) {
  int const devices = one_of(random, {2, 4, 8});
  Cluster cluster{test_profile(devices, one_of(random, {devices, devices, devices / 2})), 1, {}};
  cluster.nodes = (plan.world_size() + devices - 1) / devices;
  std::uniform_int_distribution<int> device(0, plan.world_size() - 1);
  std::uniform_real_distribution<double> speed(0.5, 1);
  for (int k = homogeneous ? 0 : one_of(random, {1, 2, 3}); k > 0; --k)
    cluster.exceptions.push_back({Rank(device(random)), speed(random), speed(random), speed(random)});
  return cluster;
}

} // namespace foreplan::testing

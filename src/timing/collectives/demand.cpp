#include "timing/collectives/demand.hpp"

#include "cluster/links.hpp"
#include "timing/collectives/channels.hpp"
#include "timing/collectives/measured.hpp"

#include <algorithm>

namespace foreplan {

GroupShape shape_of(Cluster const& cluster, GroupLayout const& layout) {
  Node const& node = cluster.profile.node;
  return {.members = layout.members,
          .nodes = layout.nodes,
          .on_a_node = layout.fewest_on_a_node,
          .node_devices = node.devices,
          .scale_up = node.scale_up.value(),
          .network = node.nic.value() * layout.fewest_nics * network_share(cluster, layout.nodes)};
}

GroupLayout layout_of_pair(bool same_node) {
  return {.members = 2, .nodes = same_node ? 1 : 2, .fewest_on_a_node = same_node ? 2 : 1};
}

SizedCollective sized(Op const& op, Operands const& operands, int members) {
  double const sent = wire_bytes(op, operands, members).value();
  double const others = static_cast<double>(members - 1) / members;
  switch (op.kind) {
    case OpKind::all_reduce: return {CollectiveOp::all_reduce, sent / (2 * others)};
    case OpKind::all_gather: return {CollectiveOp::all_gather, sent / others};
    case OpKind::reduce_scatter: return {CollectiveOp::reduce_scatter, sent / others};
    case OpKind::all_to_all: return {CollectiveOp::all_to_all, sent / others};
    default: return {CollectiveOp::send_receive, sent};
  }
}

namespace {

// What one flow carries, of `sent` bytes that a member sends in a ring; the flow's links count 1/p of it, p = on_a_node,
// as one unit.
double unit_bytes(CollectiveOp op, CollectiveAlgorithm algorithm, double buffer, double sent, GroupShape const& shape) {
  double const parts = shape.nodes == 1 ? 1 : shape.on_a_node;
  switch (algorithm) {
    case CollectiveAlgorithm::nvls: return buffer;
    case CollectiveAlgorithm::tree:
    case CollectiveAlgorithm::nvls_tree: return buffer * (shape.nodes == 2 ? 1 : 2) / parts;
    case CollectiveAlgorithm::ring:
    case CollectiveAlgorithm::pat: return sent / parts;
    // Each member by its own NIC: all of a message, of an all-to-all what leaves the node.
    case CollectiveAlgorithm::direct:
      return op == CollectiveOp::all_to_all && shape.nodes > 1
                 ? sent * (shape.members - shape.on_a_node) / (shape.members - 1)
                 : sent;
  }
  return sent;
}

CollectiveTime time_of(Op const& op, SizedCollective const& what, GroupShape const& shape,
                       CollectiveModel const& model) {
  if (!op.by_owner)
    return collective_time(what.op, shape, model, what.bytes);
  CollectiveTime time = collective_time(CollectiveOp::broadcast, shape, model, what.bytes / shape.members);
  time.seconds *= shape.members;
  time.latency *= shape.members;
  return time;
}

Demand modelled_demand(Op const& op, Operands const& operands, Cluster const& cluster, GroupShape const& shape,
                       BytesPerSecond unit_rate) {
  HardwareProfile const& profile = cluster.profile;
  SizedCollective const what = sized(op, operands, shape.members);
  CollectiveTime const time = time_of(op, what, shape, *profile.collectives);
  double const moving = std::max(time.seconds - time.latency, 1e-12);
  double const sent = wire_bytes(op, operands, shape.members).value();
  double unit = unit_bytes(what.op, time.algorithm, what.bytes, sent, shape);
  // Links whose given efficiency is below the library's are full, not slower than measured; those of slow devices are.
  if (cluster.homogeneous())
    unit = std::min(unit, unit_rate.value() * moving);
  unit = std::max(unit, 1e-3); // a flow has bytes
  Demand demand;
  demand.issue = demand.lead = profile.issue;
  demand.device = TransferDemand{{{Seconds(time.latency), {{Bytes(unit), BytesPerSecond(unit / moving), {}}}}}};
  demand.sm_share = static_cast<double>(channels_of(time.algorithm, time.protocol, shape, what.bytes,
                                                    profile.collective_multiprocessors)) /
                    profile.chip.multiprocessors;
  // Every byte sent is read here, and as many arrive and are written.
  demand.memory_bandwidth_share = std::min(1.0, 2 * sent / time.seconds / profile.chip.memory_bandwidth.value());
  demand.evidence = Evidence::fitted;
  demand.band = profile.collectives->band;
  return demand;
}

// A step of a ring over the blocks of one tensor, with user buffers: what a gather takes for a block. Copy engines move it,
// beside one multiprocessor (Transformer Engine, module/base.py: initialize_ub, ring_exchange: use_ce, num_sm 1).
Demand block_step_demand(Op const& op, Operands const& operands, Cluster const& cluster, GroupShape const& shape,
                         BytesPerSecond unit_rate) {
  double const steps = shape.members - 1;
  Op gather = op;
  gather.kind = OpKind::all_gather;
  Tensor whole = *operands.reads[0];
  whole.shape[0] *= shape.members;
  Demand demand = modelled_demand(gather, {operands.reads, {&whole}}, cluster, shape, unit_rate);
  Phase& phase = std::get<TransferDemand>(demand.device).phases[0];
  phase.latency = phase.latency / steps;
  phase.flows[0].bytes = phase.flows[0].bytes / steps;
  demand.sm_share = 1.0 / cluster.profile.chip.multiprocessors;
  return demand;
}

} // namespace

Demand collective_demand(Op const& op, Operands const& operands, Cluster const& cluster, GroupLayout const& layout,
                         BytesPerSecond unit_rate) {
  if (OpCost const* cost = measured_cost(cluster.profile, op, operands); cost != nullptr && layout.nodes == 1)
    return measured_demand(op, operands, cluster.profile, *cost, layout.members);
  if (!cluster.profile.collectives)
    return ring_demand(op, operands, cluster, layout, unit_rate);
  if (op.kind == OpKind::ring_shift && operands.reads[0]->hop >= 0)
    return block_step_demand(op, operands, cluster, shape_of(cluster, layout), unit_rate);
  return modelled_demand(op, operands, cluster, shape_of(cluster, layout), unit_rate);
}

Demand point_to_point_demand(Op const& op, Operands const& operands, Cluster const& cluster, bool same_node,
                             BytesPerSecond unit_rate) {
  if (OpCost const* cost = measured_cost(cluster.profile, op, operands); cost != nullptr && same_node)
    return measured_demand(op, operands, cluster.profile, *cost, 2);
  if (!cluster.profile.collectives)
    return transfer_demand(op, operands, cluster, same_node, unit_rate);
  return modelled_demand(op, operands, cluster, shape_of(cluster, layout_of_pair(same_node)), unit_rate);
}

} // namespace foreplan

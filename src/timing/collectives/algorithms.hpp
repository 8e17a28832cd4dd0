// The algorithms: each adds its lines, one a protocol, to a curve. Formulas and constants: NCCL's src/graph/tuning.cc
// (notes: hardware.md B5, B6); what the fabric decides comes from the fitted values.
#pragma once

#include "timing/collectives/curve.hpp"

namespace foreplan {

struct CollectiveSetting {
  CollectiveOp op;
  GroupShape const& shape;
  CollectiveLibrary library;
  ScaleUp topology;
  CollectiveValues const& values;
};

void add_ring(CollectiveSetting const& setting, CollectiveCurve& curve);
void add_tree(CollectiveSetting const& setting, CollectiveCurve& curve);      // all-reduce
void add_multicast(CollectiveSetting const& setting, CollectiveCurve& curve); // all-reduce: NVLS, NVLSTree
void add_pat(CollectiveSetting const& setting, CollectiveCurve& curve);       // one member a node: gather, scatter
void add_direct(CollectiveSetting const& setting, CollectiveCurve& curve);    // all-to-all, send/receive

// ------------------------------------------------------------------------------------------------ what they share

// Rate of the rings through the node's fabric, or through the NICs if that is less: bytes/s on each member's wire.
double ring_rate(CollectiveSetting const& setting);
// Of a protocol whose flags or stores cost bandwidth; `simple` is the rate of Simple.
double protocol_rate(CollectiveSetting const& setting, Protocol protocol, double simple);
double base_latency(CollectiveSetting const& setting, Protocol protocol);
double node_hop(CollectiveSetting const& setting, Protocol protocol);    // ring step inside the node
double network_hop(CollectiveSetting const& setting, Protocol protocol); // ring step between nodes
bool has_ll128(CollectiveSetting const& setting);
// A rank's own 1/n of the buffer does not travel, but is read and written: seconds a byte of the buffer.
double own_share_per_byte(CollectiveSetting const& setting);

template <class Visit>
void for_each_protocol(CollectiveSetting const& setting, Visit&& visit) {
  visit(Protocol::ll);
  if (has_ll128(setting))
    visit(Protocol::ll128);
  visit(Protocol::simple);
}

} // namespace foreplan

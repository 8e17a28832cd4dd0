// Counting what a program holds and moves, for laws: live buffers, bytes of transfers.
#pragma once

#include "program/instances.hpp"
#include "program/program.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

namespace foreplan {

inline double bytes_of(Buffer const& buffer) { return static_cast<double>(buffer.elements * size_of(buffer.dtype)); }
inline double bytes_of(Tensor const& tensor) { return static_cast<double>(tensor.elements() * size_of(tensor.dtype)); }

// Temporaries that are alive: written, not yet released.
using Alive = std::map<BufferKey, Buffer>;

// Walks the instances of a stage; calls visit(instance, alive) after each op's accesses and before its releases.
inline void walk(Program const& program, StageProgram const& stage,
                 std::function<void(Instance const&, Alive const&)> const& visit) {
  Alive alive;
  for (Instance const& instance : instances_of(program, stage)) {
    for (auto const* ids : {&instance.op->reads, &instance.op->writes})
      for (TensorId id : *ids) {
        BufferKey const key = resolve(program, stage, instance, tensor_of(stage, instance, id).buffer);
        Buffer const buffer = buffer_of(program, stage, key);
        if (!buffer.persistent)
          alive.emplace(key, buffer);
      }
    visit(instance, alive);
    for (BufferRef const released : instance.op->releases)
      alive.erase(resolve(program, stage, instance, released));
  }
}

// Bytes per rank on the wire of a collective over n ranks (algorithms.md, notation; S is the whole tensor): all-reduce
// 2 (n - 1) / n S, gather and scatter (n - 1) / n S.
inline double wire_bytes(OpKind kind, double whole, int n) {
  return (kind == OpKind::all_reduce ? 2.0 : 1.0) * (n - 1) / n * whole;
}

// The larger side of a collective: the whole tensor.
inline double whole_bytes(Op const& op, std::function<Tensor const&(TensorId)> const& tensor) {
  return std::max(bytes_of(tensor(op.reads[0])), bytes_of(tensor(op.writes[0])));
}

} // namespace foreplan

#include "program/synchronize.hpp"

#include "program/stream_order.hpp"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <vector>

namespace foreplan {

namespace {

using Clock = VectorClock<stream_count>;

// A range of a storage, as far as waits are concerned.
struct Storage {
  BufferRef buffer;
  std::int32_t micro_batch = -1; // of boundary tensors at step level
  friend auto operator<=>(Storage const&, Storage const&) = default;
};

struct Range {
  Storage storage;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool temporary = false; // its memory comes from the pool when it is first written
};

// What one entry of an issue order does, as far as waits are concerned.
struct Node {
  Stream stream = Stream::compute;
  std::vector<Range> reads;
  std::vector<Range> writes;
  std::vector<Storage> releases;  // counted as writes: a release follows all uses
  bool releases_memory = false;   // to the pool; a slot does for its layers, what gives up a persistent buffer does not
  bool orders_everything = false; // the step's last op
};

// Walks an issue order and says for each node which earlier nodes it must wait for.
class Order {
public:
  // `entry_is_open`: there were ops before the first node; side streams are not ordered after them by themselves.
  explicit Order(bool entry_is_open) {
    if (entry_is_open) {
      nodes_.push_back({Stream::compute, 1, {}});
      nodes_.back().clock.ended[index(Stream::compute)] = 1;
      tail_[index(Stream::compute)] = 0;
      count_[index(Stream::compute)] = 1;
      anything_released_ = true;
    }
    first_ = static_cast<std::int32_t>(nodes_.size());
  }

  // Positions of the nodes to wait for; -1 is the entry. The node becomes the last of its stream.
  std::vector<std::int32_t> add(Node const& node) {
    Placed placed{node.stream, count_[index(node.stream)] + 1, {}};
    std::vector<std::int32_t> waits = place(node, placed);
    placed.clock.ended[index(node.stream)] = placed.tick;
    auto const position = static_cast<std::int32_t>(nodes_.size());
    nodes_.push_back(placed);
    tail_[index(node.stream)] = position;
    ++count_[index(node.stream)];
    record(node, position);
    return waits;
  }

  // Adds a compute op that does nothing but wait for what `next` has to wait for; nothing if there is nothing.
  std::vector<std::int32_t> add_wait_before(Node const& next) {
    Placed placed{Stream::compute, count_[index(Stream::compute)] + 1, {}};
    std::vector<std::int32_t> waits = place(next, placed);
    if (waits.empty())
      return waits;
    placed.clock.ended[index(Stream::compute)] = placed.tick;
    tail_[index(Stream::compute)] = static_cast<std::int32_t>(nodes_.size());
    ++count_[index(Stream::compute)];
    nodes_.push_back(placed);
    return waits;
  }

  // Whether the node at `later` follows the one at `earlier` (positions as returned by add, in order of calls).
  [[nodiscard]] bool follows(std::int32_t later, std::int32_t earlier) const {
    Placed const& other = nodes_[at(earlier + first_)];
    return nodes_[at(later + first_)].clock.covers(index(other.stream), other.tick);
  }

  // Whether the last compute op follows everything.
  [[nodiscard]] bool compute_follows_all() const {
    Clock const& clock = nodes_[at(tail_[index(Stream::compute)])].clock;
    for (std::size_t stream = 0; stream < stream_count; ++stream)
      if (!clock.covers(stream, count_[stream]))
        return false;
    return true;
  }

private:
  struct Placed {
    Stream stream;
    std::int32_t tick; // 1-based count on its stream
    Clock clock;
  };
  struct Use {
    std::int64_t begin, end;
    std::int32_t node;
    bool write;
  };

  static std::size_t index(Stream stream) { return static_cast<std::size_t>(stream); }
  static std::size_t at(std::int32_t position) { return static_cast<std::size_t>(position); }

  // Fills the node's clock and returns the waits that make it so.
  std::vector<std::int32_t> place(Node const& node, Placed& placed) const {
    std::set<std::int32_t> required = conflicts(node);
    bool const side = node.stream != Stream::compute;
    // In a layer releases are placed later, behind any compute op; in a stage they are known, all of them compute ops'.
    std::int32_t const released = first_ == 1 ? tail_[index(Stream::compute)] : last_release_;
    if (side && first_ == 1 && touches_earlier_storage(node))
      required.insert(0);
    if (side && anything_released_ && touches_new_temporary(node) && released >= 0)
      required.insert(released);
    if (node.orders_everything)
      for (std::int32_t tail : tail_)
        if (tail >= 0)
          required.insert(tail);
    if (std::int32_t const before = tail_[index(node.stream)]; before >= 0)
      placed.clock = nodes_[at(before)].clock;
    std::vector<std::int32_t> waits;
    for (auto it = required.rbegin(); it != required.rend(); ++it) { // the latest implies most of the others
      Placed const& other = nodes_[at(*it)];
      if (placed.clock.covers(index(other.stream), other.tick))
        continue;
      placed.clock.merge(other.clock);
      waits.push_back(*it - first_);
    }
    return waits;
  }

  std::set<std::int32_t> conflicts(Node const& node) const {
    std::set<std::int32_t> required;
    auto collect = [&](Storage const& storage, std::int64_t begin, std::int64_t end, bool writes) {
      auto const found = uses_.find(storage);
      if (found == uses_.end())
        return;
      for (Use const& use : found->second)
        if (use.begin < end && begin < use.end && (writes || use.write))
          required.insert(use.node);
    };
    for (Range const& read : node.reads)
      collect(read.storage, read.begin, read.end, false);
    for (Range const& write : node.writes)
      collect(write.storage, write.begin, write.end, true);
    for (Storage const& release : node.releases)
      collect(release, 0, INT64_MAX, true);
    return required;
  }

  // Storage whose uses before the entry are not known here: what the layer reads or keeps from its forward.
  bool touches_earlier_storage(Node const& node) const {
    return std::any_of(node.reads.begin(), node.reads.end(),
                       [&](Range const& read) { return !uses_.contains(read.storage); });
  }

  bool touches_new_temporary(Node const& node) const {
    return std::any_of(node.writes.begin(), node.writes.end(), [&](Range const& write) {
      return write.temporary && (!uses_.contains(write.storage) || released_.contains(write.storage));
    });
  }

  void record(Node const& node, std::int32_t position) {
    if (node.releases_memory) {
      anything_released_ = true;
      last_release_ = position;
    }
    for (Storage const& storage : node.releases) {
      uses_[storage] = {{0, INT64_MAX, position, true}}; // it followed all uses; what lives there next follows it
      released_.insert(storage);
    }
    for (Range const& write : node.writes) {
      released_.erase(write.storage);
      auto& uses = uses_[write.storage];
      std::erase_if(uses, [&](Use const& use) { return write.begin <= use.begin && use.end <= write.end; });
      uses.push_back({write.begin, write.end, position, true});
    }
    for (Range const& read : node.reads) {
      auto& uses = uses_[read.storage];
      // An earlier read on the same stream has ended when this one has: what follows this one follows it.
      std::erase_if(uses, [&](Use const& use) {
        return !use.write && read.begin <= use.begin && use.end <= read.end &&
               nodes_[at(use.node)].stream == node.stream;
      });
      uses.push_back({read.begin, read.end, position, false});
    }
  }

  std::int32_t first_ = 0;         // position of the first node that was added
  bool anything_released_ = false; // to the pool, so far
  std::int32_t last_release_ = -1; // the node that released last
  std::vector<Placed> nodes_;
  std::array<std::int32_t, stream_count> tail_ = filled_with_minus_one();
  std::array<std::int32_t, stream_count> count_{};
  std::map<Storage, std::vector<Use>> uses_;
  std::set<Storage> released_; // and not in use again

  static std::array<std::int32_t, stream_count> filled_with_minus_one() {
    std::array<std::int32_t, stream_count> array;
    array.fill(-1);
    return array;
  }
};

// -------------------------------------------------------------------------------------------------------- layer programs

std::int32_t next_id(LayerProgram const& layer) {
  std::int32_t next = 0;
  for (SlotKind kind : slot_kinds)
    for (Op const& op : ops_of(layer, kind))
      next = std::max(next, op.id.value() + 1);
  return next;
}

bool is_read_only(BufferRef::Scope scope) {
  return scope == BufferRef::Scope::parameter || scope == BufferRef::Scope::tokens || scope == BufferRef::Scope::labels;
}

bool is_temporary(BufferRef::Scope scope) {
  using Scope = BufferRef::Scope;
  return scope == Scope::local || scope == Scope::output || scope == Scope::input_gradient;
}

Node node_of(LayerProgram const& layer, Op const& op) {
  Node node;
  node.stream = op.stream;
  auto range = [&](TensorId id) {
    Tensor const& tensor = layer[id];
    // Blocks by hop: where they lie differs from rank to rank, but equal hops are one block and unequal ones are two.
    std::int64_t const begin = tensor.hop > 0 ? tensor.hop * tensor.elements() : tensor.offset;
    return Range{{tensor.buffer, -1}, begin, begin + tensor.elements(), is_temporary(tensor.buffer.scope)};
  };
  for (TensorId id : op.reads)
    if (!is_read_only(layer[id].buffer.scope))
      node.reads.push_back(range(id));
  for (TensorId id : op.writes)
    node.writes.push_back(range(id));
  return node;
}

// The buffers whose life ends inside the last of this layer's passes that uses them.
bool is_released_here(BufferRef buffer) {
  using Scope = BufferRef::Scope;
  return buffer.scope == Scope::local || buffer.scope == Scope::input || buffer.scope == Scope::output_gradient;
}

bool uses(LayerProgram const& layer, Op const& op, BufferRef buffer) {
  auto is = [&](TensorId id) { return layer[id].buffer == buffer; };
  return std::any_of(op.reads.begin(), op.reads.end(), is) || std::any_of(op.writes.begin(), op.writes.end(), is);
}

std::set<BufferRef> buffers_used(LayerProgram const& layer, std::vector<Op> const& ops) {
  std::set<BufferRef> buffers;
  for (Op const& op : ops)
    for (auto const* ids : {&op.reads, &op.writes})
      for (TensorId id : *ids)
        if (is_released_here(layer[id].buffer))
          buffers.insert(layer[id].buffer);
  return buffers;
}

// The first compute op that follows all uses of the buffer in this list.
std::size_t release_place(LayerProgram const& layer, std::vector<Op> const& ops, Order const& order, BufferRef buffer) {
  std::vector<std::int32_t> users;
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (uses(layer, ops[i], buffer))
      users.push_back(static_cast<std::int32_t>(i));
  for (auto i = static_cast<std::size_t>(users.back()); i < ops.size(); ++i) {
    auto const position = static_cast<std::int32_t>(i);
    bool const after_all = std::all_of(users.begin(), users.end(), [&](std::int32_t user) {
      return user == position || order.follows(position, user);
    });
    if (ops[i].stream == Stream::compute && after_all)
      return i;
  }
  throw std::logic_error(fmt::format("{}: no op follows all uses of a buffer of {}", layer.name, ops.back().name));
}

// What comes after a layer follows its last compute op: that op must follow everything in the layer.
Order add_waits(LayerProgram const& layer, std::vector<Op>& ops) {
  Order order(true);
  auto add = [&](Op& op, Node const& node) {
    op.waits.clear();
    for (std::int32_t position : order.add(node))
      op.waits.push_back(position < 0 ? entry : ops[static_cast<std::size_t>(position)].id);
  };
  for (Op& op : ops)
    add(op, node_of(layer, op));
  if (!ops.empty() && !order.compute_follows_all()) {
    Op join;
    join.id = OpId(next_id(layer));
    join.name = "join";
    join.part = ops.back().part;
    add(join, {Stream::compute, {}, {}, {}, false, true});
    ops.push_back(std::move(join));
  }
  return order;
}

void add_releases(LayerProgram const& layer, std::vector<Op>& ops, Order const& order,
                  std::set<BufferRef> const& buffers) {
  for (BufferRef buffer : buffers)
    ops[release_place(layer, ops, order, buffer)].releases.push_back(buffer);
}

// ---------------------------------------------------------------------------------------------------------- stage programs

// The stage buffers that a layer's ops use, found once per layer.
struct LayerStorage {
  std::array<std::set<std::int32_t>, slot_kind_count> parameters; // by the pass that reads them
  std::set<std::int32_t> gradients;
  std::array<bool, slot_kind_count> writes_loss{}; // by pass: the forward, or the backward of a loss in pieces
};

std::vector<LayerStorage> storage_of_layers(StageProgram const& stage, std::size_t layers, Program const& program) {
  std::vector<LayerStorage> result(layers);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    StageLayer const& stage_layer = stage.layers[layer];
    if (stage_layer.program < 0)
      continue;
    LayerProgram const& layer_program = program.layer_programs[static_cast<std::size_t>(stage_layer.program)];
    for (SlotKind kind : slot_kinds)
      for (Op const& op : ops_of(layer_program, kind)) {
        result[layer].writes_loss[static_cast<std::size_t>(kind)] |= op.kind == OpKind::loss_forward;
        for (TensorId id : op.reads)
          if (BufferRef const read = layer_program[id].buffer; read.scope == BufferRef::Scope::parameter)
            result[layer].parameters[static_cast<std::size_t>(kind)].insert(
                stage_layer.homes[static_cast<std::size_t>(read.index)].parameters.value());
      }
    for (ParameterHome const& home : stage_layer.homes)
      result[layer].gradients.insert(home.gradients.value());
  }
  return result;
}

Range whole(BufferRef::Scope scope, std::int32_t index, std::int32_t micro_batch = -1) {
  return {{{scope, index}, micro_batch}, 0, INT64_MAX, micro_batch >= 0};
}

// `reads_inputs`: a backward's inputs may come from elsewhere (offloaded checkpoints).
Node node_of(Slot const& slot, std::vector<LayerStorage> const& layers, int layer_count, bool reads_inputs) {
  using Scope = BufferRef::Scope;
  Node node;
  node.releases_memory = true;
  std::int32_t const j = slot.micro_batch.value();
  bool const forward = slot.kind == SlotKind::forward;
  for (int layer = slot.first; layer < slot.last; ++layer) {
    LayerStorage const& storage = layers[static_cast<std::size_t>(layer)];
    for (std::int32_t buffer : storage.parameters[static_cast<std::size_t>(slot.kind)])
      node.reads.push_back(whole(Scope::stage, buffer));
    if (reads_inputs && !forward && layer > 0)
      node.reads.push_back(whole(Scope::activation, layer, j));
    if (!forward)
      for (std::int32_t buffer : storage.gradients)
        node.writes.push_back(whole(Scope::stage, buffer));
    if (storage.writes_loss[static_cast<std::size_t>(slot.kind)])
      node.writes.push_back(whole(Scope::stage, loss_buffer));
  }
  Scope const kind = forward ? Scope::activation : Scope::activation_gradient;
  std::int32_t const from = forward ? slot.first : slot.last;
  std::int32_t const to = forward ? slot.last : slot.first;
  if (from > 0 && from < layer_count)
    node.reads.push_back(whole(kind, from, j));
  if (to > 0 && to < layer_count && slot.kind != SlotKind::weight_gradient)
    node.writes.push_back(whole(kind, to, j));
  return node;
}

bool is_persistent(StageProgram const& stage, BufferRef buffer) {
  return buffer.scope == BufferRef::Scope::stage && stage.buffers[static_cast<std::size_t>(buffer.index)].persistent;
}

Node node_of(StageProgram const& stage, Op const& op) {
  using Scope = BufferRef::Scope;
  Node node;
  node.stream = op.stream;
  node.orders_everything = op.kind == OpKind::wait && op.host_sync;
  auto storage = [&](BufferRef buffer) {
    bool const boundary = buffer.scope == Scope::activation || buffer.scope == Scope::activation_gradient;
    return Storage{buffer, boundary ? op.micro_batch.value() : -1};
  };
  auto range = [&](TensorId id) {
    Tensor const& tensor = stage[id];
    // Which shard is a rank's own differs: a shard stands for the whole.
    bool const own_shard = tensor.is_own_shard();
    return Range{storage(tensor.buffer), own_shard ? 0 : tensor.offset,
                 own_shard ? INT64_MAX : tensor.offset + tensor.elements(), !is_persistent(stage, tensor.buffer)};
  };
  for (TensorId id : op.reads)
    node.reads.push_back(range(id));
  for (TensorId id : op.writes)
    node.writes.push_back(range(id));
  for (BufferRef buffer : op.releases) {
    node.releases.push_back(storage(buffer));
    node.releases_memory = node.releases_memory || !is_persistent(stage, buffer);
  }
  return node;
}

} // namespace

void synchronize(LayerProgram& layer) {
  for (SlotKind kind : slot_kinds)
    for (Op& op : ops_of(layer, kind))
      op.releases.clear();
  std::set<BufferRef> used_later;
  for (auto kind = slot_kinds.rbegin(); kind != slot_kinds.rend(); ++kind) {
    std::vector<Op>& ops = ops_of(layer, *kind);
    Order const order = add_waits(layer, ops);
    std::set<BufferRef> last_used;
    for (BufferRef buffer : buffers_used(layer, ops))
      if (used_later.insert(buffer).second)
        last_used.insert(buffer);
    add_releases(layer, ops, order, last_used);
  }
}

void synchronize(Program const& program, StageProgram& stage) {
  auto const layer_count = static_cast<int>(stage.layers.size());
  std::vector<LayerStorage> const layers = storage_of_layers(stage, stage.layers.size(), program);
  Order order(false);
  std::vector<OpId> ids; // of the nodes added, by position
  auto ids_of = [&](std::vector<std::int32_t> const& positions) {
    std::vector<OpId> waits;
    for (std::int32_t position : positions)
      waits.push_back(ids[static_cast<std::size_t>(position)]);
    return waits;
  };
  std::vector<Element> result;
  for (Element& element : stage.elements) {
    if (Op* op = std::get_if<Op>(&element)) {
      op->waits = ids_of(order.add(node_of(stage, *op)));
      ids.push_back(op->id);
    } else { // a slot cannot wait: an op in front of it does, as an event wait on the compute stream
      Slot const& slot = std::get<Slot>(element);
      Node const node = node_of(slot, layers, layer_count, program.plan.offload.checkpoints);
      if (std::vector<std::int32_t> const waits = order.add_wait_before(node); !waits.empty()) {
        Op wait;
        wait.id = OpId(stage.next_op++);
        wait.name = "wait";
        wait.part = Part::step;
        wait.waits = ids_of(waits);
        ids.push_back(wait.id);
        result.emplace_back(std::move(wait));
      }
      order.add(node);
      ids.push_back(slot.id);
    }
    result.push_back(std::move(element));
  }
  stage.elements = std::move(result);
}

} // namespace foreplan

#include "tests/proof/mutations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>

namespace foreplan {
namespace {

using Kind = Mutation::Kind;
using List = Mutation::List;

// ------------------------------------------------------------------------------------------------------------- walking

// One op where it stands. `tensors` and `releases` are those of its owner.
struct Place {
  Mutation at; // list, owner, index
  Op const& op;
  std::vector<Tensor> const& tensors;
};

constexpr List layer_lists[] = {List::forward, List::backward, List::weight_gradient};

SlotKind kind_of(List list) { return static_cast<SlotKind>(list); } // of a layer program's list

std::string name_of(Program const& program, Mutation const& at) {
  if (at.list == List::stage)
    return fmt::format("stage {}", at.owner);
  return fmt::format("{}, {}", program.layer_programs[static_cast<std::size_t>(at.owner)].name,
                     to_string(kind_of(at.list)));
}

std::set<std::int32_t> used_layer_programs(Program const& program) {
  std::set<std::int32_t> used;
  for (StageProgram const& stage : program.stages)
    for (StageLayer const& layer : stage.layers)
      if (layer.program >= 0)
        used.insert(layer.program);
  return used;
}

template <class Visit>
void for_each_op(Program const& program, Visit visit) {
  for (std::int32_t owner : used_layer_programs(program)) {
    LayerProgram const& layer = program.layer_programs[static_cast<std::size_t>(owner)];
    for (List list : layer_lists) {
      std::vector<Op> const& ops = ops_of(layer, kind_of(list));
      for (std::size_t i = 0; i < ops.size(); ++i) {
        Mutation at;
        at.list = list;
        at.owner = owner;
        at.index = static_cast<std::int32_t>(i);
        visit(Place{at, ops[i], layer.tensors});
      }
    }
  }
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    StageProgram const& stage = program.stages[s];
    for (std::size_t i = 0; i < stage.elements.size(); ++i)
      if (Op const* op = std::get_if<Op>(&stage.elements[i])) {
        Mutation at;
        at.owner = static_cast<std::int32_t>(s);
        at.index = static_cast<std::int32_t>(i);
        visit(Place{at, *op, stage.tensors});
      }
  }
}

class Collector {
public:
  explicit Collector(Program const& program) : program_(program) {}

  Mutation& add(Mutation at, Kind kind, std::string const& what) {
    at.kind = kind;
    at.name = fmt::format("{}: {}", name_of(program_, at), what);
    mutations.push_back(std::move(at));
    return mutations.back();
  }

  std::vector<Mutation> mutations;

private:
  Program const& program_;
};

// ------------------------------------------------------------------------------------------------------ what is missing

std::string name_of_wait(Program const& program, Place const& place, OpId target) {
  if (target == entry)
    return "entry";
  std::string name = fmt::format("slot {}", target.value());
  for_each_op(program, [&](Place const& other) {
    if (other.at.list == place.at.list && other.at.owner == place.at.owner && other.op.id == target)
      name = other.op.name;
  });
  return name;
}

void collect_waits(Program const& program, Place const& place, Collector& to) {
  for (std::size_t w = 0; w < place.op.waits.size(); ++w)
    to.add(place.at, Kind::delete_wait,
           fmt::format("{} does not wait for {}", place.op.name, name_of_wait(program, place, place.op.waits[w])))
        .detail = static_cast<std::int32_t>(w);
}

void collect_deletion(Place const& place, Collector& to) {
  if (place.op.kind == OpKind::wait)
    return; // its waits and releases are mutations of their own
  bool const moves = is_communication(place.op.kind);
  to.add(place.at, moves ? Kind::delete_communication : Kind::delete_compute, fmt::format("without {}", place.op.name));
}

// ---------------------------------------------------------------------------------------------------- what comes too early

bool uses(std::vector<Tensor> const& tensors, Op const& op, BufferRef buffer) {
  auto is = [&](TensorId id) { return tensors[id.index()].buffer == buffer; };
  return std::any_of(op.reads.begin(), op.reads.end(), is) || std::any_of(op.writes.begin(), op.writes.end(), is);
}

bool is_boundary(BufferRef buffer) {
  return buffer.scope == BufferRef::Scope::activation || buffer.scope == BufferRef::Scope::activation_gradient;
}

// A slot writes the boundary at its end; reads at its beginning are not released at step level.
bool writes_boundary(Slot const& slot, BufferRef buffer) {
  switch (slot.kind) {
    case SlotKind::forward: return buffer == BufferRef{BufferRef::Scope::activation, slot.last};
    case SlotKind::backward: return buffer == BufferRef{BufferRef::Scope::activation_gradient, slot.first};
    case SlotKind::weight_gradient: break;
  }
  return false;
}

// Whether a layer's op of the slot uses the stage's flat buffer.
bool uses_home(Program const& program, StageProgram const& stage, Slot const& slot, BufferRef buffer) {
  auto is_home = [&](StageLayer const& layer, BufferRef used) {
    if (used.scope != BufferRef::Scope::parameter && used.scope != BufferRef::Scope::gradient)
      return false;
    ParameterHome const& home = layer.homes[static_cast<std::size_t>(used.index)];
    return (used.scope == BufferRef::Scope::parameter ? home.parameters : home.gradients).value() == buffer.index;
  };
  for (int i = slot.first; i < slot.last; ++i) {
    StageLayer const& layer = stage.layers[static_cast<std::size_t>(i)];
    LayerProgram const& ops = program.layer_programs[static_cast<std::size_t>(layer.program)];
    for (Op const& op : ops_of(ops, slot.kind))
      for (auto const* ids : {&op.reads, &op.writes})
        for (TensorId id : *ids)
          if (buffer.scope == BufferRef::Scope::stage && is_home(layer, ops[id].buffer))
            return true;
  }
  return false;
}

// Where the life of a stage's temporary begins that the place ends: behind the release before.
std::size_t begin_of_life(StageProgram const& stage, Place const& place, BufferRef buffer) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(place.at.index); ++i)
    if (Op const* op = std::get_if<Op>(&stage.elements[i]);
        op != nullptr && (!is_boundary(buffer) || op->micro_batch == place.op.micro_batch) &&
        std::find(op->releases.begin(), op->releases.end(), buffer) != op->releases.end())
      begin = i + 1;
  return begin;
}

// Positions in the releasing op's list that use the buffer, in the life that it ends.
std::vector<std::int32_t> users_of(Program const& program, Place const& place, BufferRef buffer) {
  std::vector<std::int32_t> users;
  auto const owner = static_cast<std::size_t>(place.at.owner);
  if (place.at.list != List::stage) {
    LayerProgram const& layer = program.layer_programs[owner];
    std::vector<Op> const& ops = ops_of(layer, kind_of(place.at.list));
    for (std::size_t i = 0; i < ops.size(); ++i)
      if (uses(layer.tensors, ops[i], buffer))
        users.push_back(static_cast<std::int32_t>(i));
    return users;
  }
  StageProgram const& stage = program.stages[owner];
  for (std::size_t i = begin_of_life(stage, place, buffer); i <= static_cast<std::size_t>(place.at.index); ++i) {
    bool is_user = false;
    if (Op const* op = std::get_if<Op>(&stage.elements[i]))
      is_user = uses(stage.tensors, *op, buffer) && (!is_boundary(buffer) || op->micro_batch == place.op.micro_batch);
    else if (Slot const& slot = std::get<Slot>(stage.elements[i]); is_boundary(buffer))
      is_user = slot.micro_batch == place.op.micro_batch && writes_boundary(slot, buffer);
    else
      is_user = uses_home(program, stage, slot, buffer);
    if (is_user)
      users.push_back(static_cast<std::int32_t>(i));
  }
  return users;
}

// At every position from the first user on (the op before the last user at the latest).
void collect_early_releases(Program const& program, Place const& place, Collector& to) {
  for (std::size_t r = 0; r < place.op.releases.size(); ++r) {
    std::vector<std::int32_t> const users = users_of(program, place, place.op.releases[r]);
    if (users.empty())
      throw std::logic_error(fmt::format("{} releases what its list does not use", place.op.name));
    for (std::int32_t target = std::max(0, std::min(users.front(), users.back() - 1)); target < users.back();
         ++target) {
      Mutation& mutation = to.add(
          place.at, Kind::early_release,
          fmt::format("release {} of {} moved from {} to {}", r, place.op.name, place.at.index, target));
      mutation.detail = static_cast<std::int32_t>(r);
      mutation.target = target;
    }
  }
}

// ------------------------------------------------------------------------------------------------------- wrong amounts

std::vector<AxisSet> all_axis_sets() {
  std::vector<AxisSet> sets{{}};
  for (Axis axis : all_axes)
    for (std::size_t i = 0, size = sets.size(); i < size; ++i)
      sets.push_back(sets[i] | axis);
  return sets;
}

// Names the ranks of a group: without axes of one rank, without "ends" of two stages.
Group canonical(Plan const& plan, Group const& group) {
  auto only = [&](Axis axis) { return group.axes.contains(axis) && degree(plan, axis) > 1; };
  return {nontrivial(plan, group.axes), group.pipeline_ends && only(Axis::pp) && plan.pp > 2};
}

void collect_groups(Plan const& plan, Place const& place, Collector& to) {
  std::set<Group> seen{canonical(plan, place.op.group)};
  for (AxisSet const axes : all_axis_sets())
    for (bool const ends : {false, true}) {
      Group const group = canonical(plan, {axes, ends});
      if (!seen.insert(group).second)
        continue;
      to.add(place.at, Kind::change_group,
             fmt::format("{} over {}{}", place.op.name, axes.empty() ? "itself" : to_string(axes),
                         ends ? " (ends)" : ""))
          .group = group;
    }
}

void collect_kinds(Place const& place, Collector& to) {
  for (OpKind const kind :
       {OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter, OpKind::all_to_all, OpKind::ring_shift})
    if (kind != place.op.kind)
      to.add(place.at, Kind::change_collective, fmt::format("{} is {}", place.op.name, to_string(kind))).op_kind = kind;
}

void collect_wire_dtypes(Place const& place, Collector& to) {
  std::vector<TensorId> ids = place.op.reads;
  ids.insert(ids.end(), place.op.writes.begin(), place.op.writes.end());
  for (TensorId id : ids)
    to.add(place.at, Kind::change_wire_dtype,
           fmt::format("{} moves {} in another dtype", place.op.name, place.tensors[id.index()].name))
        .detail = id.value();
}

void collect_scales(Place const& place, Collector& to) {
  OpKind const kind = place.op.kind;
  bool const has_scale = kind == OpKind::loss_forward || kind == OpKind::loss_backward ||
                         kind == OpKind::norm_squared || kind == OpKind::attention_softmax ||
                         kind == OpKind::attention_softmax_backward;
  if (!has_scale)
    return;
  std::set<double> factors{2.0, 0.5};
  if (place.op.scale != 1)
    factors.insert(1 / place.op.scale);
  for (double const factor : factors)
    to.add(place.at, Kind::change_scale, fmt::format("{} scaled by {} as much", place.op.name, factor)).factor = factor;
}

// Each tensor that an op reads or writes, or that is declared for the step's ends, once.
void collect_tensors(Program const& program, Collector& to) {
  std::set<std::tuple<bool, std::int32_t, TensorId>> seen;
  auto shift = [&](Mutation const& at, std::vector<Tensor> const& tensors, TensorId id) {
    if (!seen.insert({at.list == List::stage, at.owner, id}).second)
      return;
    Tensor const& tensor = tensors[id.index()];
    to.add(at, Kind::shift_tensor, fmt::format("{} one element further", tensor.name)).detail = id.value();
    for (Axis axis : all_axes) {
      std::int64_t const right = tensor.stride[static_cast<std::size_t>(axis)];
      if (right == 0 || degree(program.plan, axis) == 1)
        continue;
      for (std::int64_t const stride : {std::int64_t{0}, right - 1, right + 1}) {
        Mutation& mutation = to.add(at, Kind::change_shard_stride,
                                    fmt::format("{} {} elements apart, not {}", tensor.name, stride, right));
        mutation.detail = id.value();
        mutation.target = static_cast<std::int32_t>(stride);
        mutation.group.axes = axis;
      }
    }
  };
  for_each_op(program, [&](Place const& place) {
    for (auto const* ids : {&place.op.reads, &place.op.writes})
      for (TensorId id : *ids)
        shift(place.at, place.tensors, id);
  });
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    StageProgram const& stage = program.stages[s];
    Mutation at;
    at.owner = static_cast<std::int32_t>(s);
    for (auto const* ids : {&stage.initial, &stage.results})
      for (TensorId id : *ids)
        shift(at, stage.tensors, id);
  }
}

void collect_parameters(Program const& program, Collector& to) {
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    StageProgram const& stage = program.stages[s];
    for (std::size_t layer = 0; layer < stage.layers.size(); ++layer)
      for (std::size_t p = 0; p < stage.layers[layer].homes.size(); ++p) {
        Mutation at;
        at.owner = static_cast<std::int32_t>(s);
        at.index = static_cast<std::int32_t>(layer);
        Parameter const& parameter =
            program.layer_programs[static_cast<std::size_t>(stage.layers[layer].program)].parameters[p];
        to.add(at, Kind::shift_parameter, fmt::format("{} of layer {} one element too early", parameter.name, layer))
            .detail = static_cast<std::int32_t>(p);
      }
  }
}

// ------------------------------------------------------------------------------------------------------------- applying

std::vector<Op>& list_of(Program& program, Mutation const& mutation) {
  LayerProgram& layer = program.layer_programs[static_cast<std::size_t>(mutation.owner)];
  return ops_of(layer, kind_of(mutation.list));
}

Op& op_of(Program& program, Mutation const& mutation) {
  auto const index = static_cast<std::size_t>(mutation.index);
  if (mutation.list != List::stage)
    return list_of(program, mutation)[index];
  return std::get<Op>(program.stages[static_cast<std::size_t>(mutation.owner)].elements[index]);
}

Tensor& tensor_of(Program& program, Mutation const& mutation) {
  auto const owner = static_cast<std::size_t>(mutation.owner);
  TensorId const id(mutation.detail);
  return mutation.list == List::stage ? program.stages[owner][id] : program.layer_programs[owner][id];
}

// What waited for a deleted op waits for what that op waited for: only the op is missing.
void inherit_waits(Op& op, OpId deleted, std::vector<OpId> const& waits) {
  if (std::erase(op.waits, deleted) > 0)
    op.waits.insert(op.waits.end(), waits.begin(), waits.end());
}

void delete_op(Program& program, Mutation const& mutation) {
  Op const deleted = op_of(program, mutation);
  if (mutation.list != List::stage) {
    std::vector<Op>& ops = list_of(program, mutation);
    ops.erase(ops.begin() + mutation.index);
    for (Op& op : ops)
      inherit_waits(op, deleted.id, deleted.waits);
    return;
  }
  auto& elements = program.stages[static_cast<std::size_t>(mutation.owner)].elements;
  elements.erase(elements.begin() + mutation.index);
  for (Element& element : elements)
    if (Op* op = std::get_if<Op>(&element))
      inherit_waits(*op, deleted.id, deleted.waits);
}

void move_release(Program& program, Mutation const& mutation) {
  Op& op = op_of(program, mutation);
  BufferRef const buffer = op.releases[static_cast<std::size_t>(mutation.detail)];
  op.releases.erase(op.releases.begin() + mutation.detail);
  if (mutation.list != List::stage) {
    list_of(program, mutation)[static_cast<std::size_t>(mutation.target)].releases.push_back(buffer);
    return;
  }
  // Behind the element there, by an op of its own: the element may be a slot, or of another micro-batch.
  StageProgram& stage = program.stages[static_cast<std::size_t>(mutation.owner)];
  Op release;
  release.id = OpId(stage.next_op++);
  release.name = "early release";
  release.part = Part::step;
  release.micro_batch = op.micro_batch;
  release.releases = {buffer};
  stage.elements.insert(stage.elements.begin() + mutation.target + 1, std::move(release));
}

DType another(DType dtype) { return dtype == DType::bf16 ? DType::fp32 : DType::bf16; }

} // namespace

std::string_view to_string(Mutation::Kind kind) {
  switch (kind) {
    case Kind::delete_wait: return "delete wait";
    case Kind::delete_communication: return "delete communication";
    case Kind::delete_compute: return "delete compute";
    case Kind::early_release: return "early release";
    case Kind::shift_tensor: return "shift tensor";
    case Kind::change_shard_stride: return "change shard stride";
    case Kind::change_group: return "change group";
    case Kind::change_collective: return "change collective";
    case Kind::change_scale: return "change scale";
    case Kind::change_wire_dtype: return "change wire dtype";
    case Kind::shift_parameter: return "shift parameter";
  }
  return "?";
}

std::vector<Mutation> mutations(Program const& program) {
  Collector to(program);
  for_each_op(program, [&](Place const& place) {
    collect_waits(program, place, to);
    collect_deletion(place, to);
    collect_early_releases(program, place, to);
    collect_scales(place, to);
    if (!is_collective(place.op.kind))
      return;
    collect_groups(program.plan, place, to);
    collect_kinds(place, to);
    collect_wire_dtypes(place, to);
  });
  collect_tensors(program, to);
  collect_parameters(program, to);
  return std::move(to.mutations);
}

std::vector<Mutation> mutations(Program const& program, Mutation::Kind kind) {
  std::vector<Mutation> result = mutations(program);
  std::erase_if(result, [&](Mutation const& mutation) { return mutation.kind != kind; });
  return result;
}

bool is_dead_work(Program const& program, Mutation const& mutation) {
  if (mutation.list == List::stage)
    return false;
  LayerProgram const& layer = program.layer_programs[static_cast<std::size_t>(mutation.owner)];
  std::set<BufferRef> read_later; // buffers of the layer; what leaves it is used outside
  bool result = false;
  auto visit = [&](Op const& op, bool is_asked_for) {
    bool is_live = false, reads_matter = false;
    for (TensorId id : op.writes) {
      BufferRef const buffer = layer[id].buffer;
      bool const is_used = buffer.scope != BufferRef::Scope::local || read_later.contains(buffer);
      is_live = is_live || is_used;
      bool const is_mask = layer[id].dtype == DType::uint8 && op.bits == 0 && !is_collective(op.kind);
      reads_matter = reads_matter || (is_used && !is_mask); // a dropout mask is drawn, not computed
    }
    if (reads_matter)
      for (TensorId id : op.reads)
        read_later.insert(layer[id].buffer);
    if (is_asked_for)
      result = !is_live && op.kind != OpKind::wait;
  };
  for (List list : {List::weight_gradient, List::backward, List::forward}) {
    std::vector<Op> const& ops = ops_of(layer, kind_of(list));
    for (std::size_t i = ops.size(); i-- > 0;)
      visit(ops[i], list == mutation.list && static_cast<std::int32_t>(i) == mutation.index);
  }
  return result;
}

Program apply(Program program, Mutation const& mutation) {
  switch (mutation.kind) {
    case Kind::delete_wait: {
      auto& waits = op_of(program, mutation).waits;
      waits.erase(waits.begin() + mutation.detail);
      break;
    }
    case Kind::delete_communication:
    case Kind::delete_compute: delete_op(program, mutation); break;
    case Kind::early_release: move_release(program, mutation); break;
    case Kind::shift_tensor: ++tensor_of(program, mutation).offset; break;
    case Kind::change_shard_stride:
      for (Axis axis : all_axes)
        if (mutation.group.axes.contains(axis))
          tensor_of(program, mutation).stride[static_cast<std::size_t>(axis)] = mutation.target;
      break;
    case Kind::change_group: op_of(program, mutation).group = mutation.group; break;
    case Kind::change_collective: op_of(program, mutation).kind = mutation.op_kind; break;
    case Kind::change_scale: op_of(program, mutation).scale *= mutation.factor; break;
    case Kind::change_wire_dtype: {
      Tensor& tensor = tensor_of(program, mutation);
      tensor.dtype = another(tensor.dtype);
      break;
    }
    case Kind::shift_parameter: {
      StageLayer& layer =
          program.stages[static_cast<std::size_t>(mutation.owner)].layers[static_cast<std::size_t>(mutation.index)];
      --layer.homes[static_cast<std::size_t>(mutation.detail)].offset;
      break;
    }
  }
  return program;
}

} // namespace foreplan

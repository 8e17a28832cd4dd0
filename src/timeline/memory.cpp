#include "timeline/memory.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace foreplan {

namespace {

std::int64_t bytes_of(Buffer const& buffer) { return buffer.elements * size_of(buffer.dtype); }

// What a piece of a layer program's pass does to memory, relative to its start.
struct Course {
  MemoryUse change;
  MemoryUse peak; // at the moment of the largest total
  std::string peak_op;
};

class Walk {
public:
  void take(Category category, std::int64_t bytes) { now_.by_category[static_cast<std::size_t>(category)] += bytes; }
  void observe(std::string const& op) {
    if (now_.total() > peak_.total()) {
      peak_ = now_;
      peak_op_ = op;
    }
  }
  Course course() && { return {now_, peak_, std::move(peak_op_)}; }

private:
  MemoryUse now_, peak_;
  std::string peak_op_;
};

struct Storage {
  Category category;
  std::int64_t bytes;
};

Storage storage_of(LayerProgram const& layer, Tensor const& tensor) {
  if (tensor.buffer.scope == BufferRef::Scope::local) {
    Buffer const& buffer = layer.buffers[static_cast<std::size_t>(tensor.buffer.index)];
    return {buffer.category, bytes_of(buffer)};
  }
  return {tensor.category, tensor.elements() * size_of(tensor.dtype)};
}

bool is_temporary(BufferRef::Scope scope) {
  using Scope = BufferRef::Scope;
  return scope == Scope::local || scope == Scope::output || scope == Scope::input_gradient || scope == Scope::input ||
         scope == Scope::output_gradient;
}

// Bytes of everything that the layer program's temporaries may be, by reference.
std::map<BufferRef, Storage> temporaries_of(LayerProgram const& layer) {
  std::map<BufferRef, Storage> storage;
  for (Tensor const& tensor : layer.tensors)
    if (is_temporary(tensor.buffer.scope))
      storage.try_emplace(tensor.buffer, storage_of(layer, tensor));
  return storage;
}

std::set<BufferRef> written_by(LayerProgram const& layer, std::vector<Op> const& ops) {
  std::set<BufferRef> buffers;
  for (Op const& op : ops)
    for (TensorId id : op.writes)
      buffers.insert(layer[id].buffer);
  return buffers;
}

Course course_of(LayerProgram const& layer, SlotKind kind, LayerPiece const& piece) {
  std::map<BufferRef, Storage> const storage = temporaries_of(layer);
  // There already: what enters, and what the passes before this one have kept.
  std::set<BufferRef> held{{BufferRef::Scope::input, 0}, {BufferRef::Scope::output_gradient, 0}};
  for (SlotKind earlier : slot_kinds) {
    if (earlier == kind)
      break;
    held.merge(written_by(layer, ops_of(layer, earlier)));
    for (Op const& op : ops_of(layer, earlier))
      for (BufferRef buffer : op.releases)
        held.erase(buffer);
  }
  Walk before, walk;
  for (std::size_t i = 0; i < piece.last; ++i) {
    Op const& op = ops_of(layer, kind)[i];
    Walk& here = i < piece.first ? before : walk;
    for (TensorId id : op.writes)
      if (BufferRef const buffer = layer[id].buffer; is_temporary(buffer.scope) && held.insert(buffer).second)
        here.take(storage.at(buffer).category, storage.at(buffer).bytes);
    here.observe(op.name);
    for (BufferRef buffer : op.releases)
      here.take(storage.at(buffer).category, -storage.at(buffer).bytes);
  }
  return std::move(walk).course();
}

class StageWalk {
public:
  StageWalk(Program const& program, StageProgram const& stage, bool keep_points)
      : program_(program), stage_(stage), keep_points_(keep_points) {
    boundary_bytes_ = program.plan.tokens() / (program.plan.sequence_parallel ? program.plan.tp : 1) *
                      program.model.hidden * size_of(program.plan.parameter_dtype);
  }

  StageMemory run() {
    for (Buffer const& buffer : stage_.buffers)
      if (buffer.persistent && buffer.tier == MemoryTier::device)
        result_.persistent.by_category[static_cast<std::size_t>(buffer.category)] += bytes_of(buffer);
      else if (buffer.persistent)
        result_.elsewhere[static_cast<std::size_t>(buffer.tier)] += bytes_of(buffer);
    now_ = result_.persistent;
    result_.peak.use = now_;
    for (std::size_t e = 0; e < stage_.elements.size(); ++e) {
      auto const element = static_cast<std::int32_t>(e);
      if (Op const* op = std::get_if<Op>(&stage_.elements[e]))
        pass(element, -1, course_of_op(*op));
      else
        walk_slot(std::get<Slot>(stage_.elements[e]), element);
    }
    return std::move(result_);
  }

private:
  void walk_slot(Slot const& slot, std::int32_t element) {
    for (LayerPiece const& piece : pieces_of(stage_, slot, breaks_)) {
      int const program = stage_.layers[static_cast<std::size_t>(piece.layer)].program;
      auto const [course, is_new] = courses_.try_emplace({program, slot.kind, piece.first, piece.last});
      if (is_new)
        course->second = course_of(program_.layer_programs[static_cast<std::size_t>(program)], slot.kind, piece);
      pass(element, piece.layer, course->second);
    }
  }

  Course course_of_op(Op const& op) {
    using Scope = BufferRef::Scope;
    Walk walk;
    for (TensorId id : op.writes) {
      BufferRef const buffer = stage_[id].buffer;
      if (buffer.scope == Scope::activation || buffer.scope == Scope::activation_gradient) {
        walk.take(Category::activations, boundary_bytes_);
      } else if (buffer.scope == Scope::stage) {
        Buffer const& storage = stage_.buffers[static_cast<std::size_t>(buffer.index)];
        if (!storage.persistent && storage.tier == MemoryTier::device && held_.insert(buffer.index).second)
          walk.take(storage.category, bytes_of(storage));
      }
    }
    walk.observe(op.name);
    for (BufferRef buffer : op.releases) {
      if (buffer.scope != Scope::stage) {
        walk.take(Category::activations, -boundary_bytes_);
      } else {
        Buffer const& storage = stage_.buffers[static_cast<std::size_t>(buffer.index)];
        if (held_.erase(buffer.index) > 0)
          walk.take(storage.category, -bytes_of(storage));
      }
    }
    return std::move(walk).course();
  }

  void pass(std::int32_t element, int layer, Course const& course) {
    std::int64_t const peak = now_.total() + course.peak.total();
    if (peak > result_.peak.use.total()) {
      result_.peak.use = now_;
      result_.peak.use += course.peak;
      result_.peak.element = element;
      result_.peak.layer = layer;
      result_.peak.op = course.peak_op;
    }
    now_ += course.change;
    if (keep_points_)
      result_.points.push_back({element, layer, now_, std::max(peak, now_.total())});
  }

  Program const& program_;
  StageProgram const& stage_;
  bool keep_points_;
  std::int64_t boundary_bytes_ = 0;
  BreaksOfLayers breaks_ = breaks_of(program_);
  std::map<std::tuple<int, SlotKind, std::size_t, std::size_t>, Course> courses_; // by layer program, pass and piece
  std::set<std::int32_t> held_;                                                   // temporaries of the stage
  MemoryUse now_;
  StageMemory result_;
};

} // namespace

StageMemory memory_of(Program const& program, StageProgram const& stage, bool keep_points) {
  return StageWalk(program, stage, keep_points).run();
}

} // namespace foreplan

// The content and rules part of the verifier, and its cross-rank part.
#include "program/amounts.hpp"
#include "program/placement_rules.hpp"
#include "program/verifier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

namespace foreplan {

namespace {

// -------------------------------------------------------------------------------------------------------------- content

// What a range of a buffer holds.
struct Piece {
  std::int64_t begin, end;
  DType dtype;
  Placement placement;
};

// Placements as far as they mean something: an axis of one rank means nothing, and in a flat buffer a shard is a shard,
// whatever dimension the parameter was cut along.
Placement comparable(Plan const& plan, Placement placement, bool flat) {
  for (Axis axis : all_axes) {
    if (degree(plan, axis) == 1)
      placement[axis] = replicated;
    else if (flat && placement[axis].kind == AxisPlacement::Kind::sharded)
      placement[axis].dimension = 0;
  }
  return placement;
}

// What a view is of: a rank's own part of what all ranks hold is its shard.
Placement of_view(Plan const& plan, Tensor const& view, Placement placement) {
  for (Axis axis : all_axes) {
    bool const is_own_part = degree(plan, axis) > 1 && view.stride[static_cast<std::size_t>(axis)] != 0;
    if (is_own_part && placement[axis] == replicated && view.placement[axis].kind == AxisPlacement::Kind::sharded)
      placement[axis] = view.placement[axis];
  }
  return placement;
}

class ContentCheck {
public:
  ContentCheck(Program const& program, StageProgram const& stage, Coordinate const& at, std::size_t limit)
      : program_(program), stage_(stage), at_(at), limit_(limit) {}

  std::vector<std::string> run() {
    Instance at_start{};
    for (TensorId id : stage_.initial)
      write(at_start, stage_[id]);
    std::vector<Instance> const instances = instances_of(program_, stage_);
    for (Instance const& instance : instances) {
      if (findings_.size() >= limit_)
        return findings_;
      visit(instance);
    }
    for (std::vector<TensorId> const* expected : {&stage_.initial, &stage_.results})
      for (TensorId id : *expected)
        read(at_start, stage_[id], "the step's end");
    for (auto const& [key, pieces] : held_)
      if (Buffer const buffer = buffer_of(program_, stage_, key); !buffer.persistent && !released_.contains(key))
        find(fmt::format("{} is never released", buffer.name));
    return findings_;
  }

private:
  void find(std::string text) {
    if (findings_.size() < limit_)
      findings_.push_back(std::move(text));
  }

  void visit(Instance const& instance) {
    Op const& op = *instance.op;
    std::string const who = instance.layer >= 0 ? fmt::format("{} of layer {}, micro-batch {}", op.name, instance.layer,
                                                              instance.micro_batch.value())
                                                : op.name;
    for (TensorId id : op.reads)
      read(instance, tensor_of(stage_, instance, id), who);
    for (TensorId id : op.writes)
      write(instance, tensor_of(stage_, instance, id));
    for (BufferRef buffer : op.releases) {
      BufferKey const key = resolve(program_, stage_, instance, buffer);
      if (!released_.insert(key).second)
        find(fmt::format("{} releases {} again", who, buffer_of(program_, stage_, key).name));
      held_[key].clear();
    }
  }

  bool is_data(BufferKey const& key) const {
    return key.space == BufferKey::Space::tokens || key.space == BufferKey::Space::labels;
  }

  void read(Instance const& instance, Tensor const& tensor, std::string const& who) {
    Access const access = resolve(program_, stage_, instance, tensor, at_);
    if (is_data(access.key))
      return;
    if (released_.contains(access.key))
      return find(fmt::format("{} reads {} after its release", who, tensor.name));
    bool const flat = access.key.space == BufferKey::Space::stage;
    std::int64_t covered = 0;
    for (Piece const& piece : held_[access.key]) {
      std::int64_t const overlap = std::min(piece.end, access.end) - std::max(piece.begin, access.begin);
      if (overlap <= 0)
        continue;
      covered += overlap;
      Placement const has = comparable(program_.plan, of_view(program_.plan, tensor, piece.placement), flat);
      Placement const wants = comparable(program_.plan, tensor.placement, flat);
      if (has != wants)
        return find(fmt::format("{} reads {} as {}, but it is {}", who, tensor.name, to_string(wants), to_string(has)));
      if (piece.dtype != tensor.dtype)
        return find(fmt::format("{} reads {} as {}, but it is {}", who, tensor.name, foreplan::to_string(tensor.dtype),
                                foreplan::to_string(piece.dtype)));
    }
    if (covered < access.end - access.begin)
      find(fmt::format("{} reads {}, which nobody has written", who, tensor.name));
  }

  void write(Instance const& instance, Tensor const& tensor) {
    Access const access = resolve(program_, stage_, instance, tensor, at_);
    Buffer const buffer = buffer_of(program_, stage_, access.key);
    bool const is_free = released_.contains(access.key);
    bool const may_return = access.key.space == BufferKey::Space::stage ||
                            (access.key.space == BufferKey::Space::activation && program_.plan.offload.checkpoints);
    if (is_free && may_return)
      released_.erase(access.key); // it lives again
    else if (is_free)
      find(fmt::format("{} is written after its release", tensor.name));
    if (access.begin < 0 || access.end > buffer.elements || tensor.dtype != buffer.dtype)
      find(fmt::format("{} does not lie inside its buffer ({})", tensor.name, buffer.name));
    if (buffer.tier != MemoryTier::device && buffer.category == Category::communication && access.begin != 0)
      find(fmt::format("{} does not begin where its buffer does", tensor.name));
    std::vector<Piece>& pieces = held_[access.key];
    std::vector<Piece> result;
    for (Piece const& piece : pieces) {
      if (piece.begin < access.begin)
        result.push_back({piece.begin, std::min(piece.end, access.begin), piece.dtype, piece.placement});
      if (piece.end > access.end)
        result.push_back({std::max(piece.begin, access.end), piece.end, piece.dtype, piece.placement});
    }
    result.push_back({access.begin, access.end, tensor.dtype, tensor.placement});
    pieces = std::move(result);
  }

  Program const& program_;
  StageProgram const& stage_;
  Coordinate at_;
  std::size_t limit_;
  std::unordered_map<BufferKey, std::vector<Piece>, BufferKeyHash> held_;
  std::set<BufferKey> released_;
  std::vector<std::string> findings_;
};

// ---------------------------------------------------------------------------------------------------------------- rules

int members(Plan const& plan, Group const& group) {
  return group.pipeline_ends ? 2 * group_size(plan, group.axes) / plan.pp : group_size(plan, group.axes);
}

// Codes and scales are of whole blocks, and of so many terms as ranks gave them.
std::string codes_finding(Plan const& plan, Op const& op, Operands const& o) {
  if (op.kind != OpKind::quantize && op.kind != OpKind::dequantize && op.kind != OpKind::requantize)
    return {};
  bool const encodes = op.kind == OpKind::quantize;
  Tensor const& codes = encodes ? *o.writes[0] : *o.reads[0];
  Tensor const& scales = encodes ? *o.writes[1] : *o.reads[1];
  std::int64_t terms = 1;
  for (Axis axis : all_axes)
    if (codes.placement[axis] == sum_terms)
      terms *= degree(plan, axis);
  bool fits = (op.bits == 4 || op.bits == 8) && op.blocks % (op.swizzle * terms) == 0 &&
              codes.elements() % op.blocks == 0 && scales.elements() % op.blocks == 0;
  if (encodes)
    fits = fits && codes.elements() * 8 == o.reads[0]->elements() * op.bits;
  else if (op.kind == OpKind::dequantize)
    fits = fits && codes.elements() * 8 == o.writes[0]->elements() * op.bits * terms;
  else
    fits = fits && codes.elements() == o.writes[0]->elements() * terms &&
           scales.elements() == o.writes[1]->elements() * terms;
  return fits ? std::string{}
              : fmt::format("{}: {} codes and {} scales do not fit", op.name, codes.elements(), scales.elements());
}

std::string size_finding(Plan const& plan, Op const& op, Operands const& o) {
  if (!is_collective(op.kind))
    return {};
  std::int64_t const in = o.reads[0]->elements(), out = o.writes[0]->elements(), n = members(plan, op.group);
  bool const fits = op.kind == OpKind::all_gather       ? out == n * in
                    : op.kind == OpKind::reduce_scatter ? in == n * out
                                                        : in == out;
  if (!fits)
    return fmt::format("{} of {} and {} elements over {} ranks", op.name, in, out, n);
  if (o.reads[0]->dtype != o.writes[0]->dtype)
    return fmt::format("{} changes the dtype", op.name);
  return {};
}

// An all-reduce inside one buffer writes where it reads. A gather or scatter inside one buffer works on the rank's own shard of it where that shard lies (as NCCL asks for).
std::string in_place_finding(Plan const& plan, Op const& op, Operands const& o) {
  if (op.kind == OpKind::all_reduce && o.reads[0]->buffer == o.writes[0]->buffer &&
      (o.reads[0]->offset != o.writes[0]->offset || o.reads[0]->stride != o.writes[0]->stride))
    return fmt::format("{} in place, but writes elsewhere", op.name);
  if ((op.kind != OpKind::all_gather && op.kind != OpKind::reduce_scatter) || o.reads[0]->buffer != o.writes[0]->buffer)
    return {};
  bool const gathers = op.kind == OpKind::all_gather;
  Tensor const& shard = gathers ? *o.reads[0] : *o.writes[0];
  Tensor const& whole = gathers ? *o.writes[0] : *o.reads[0];
  bool is_own_shard = shard.offset == whole.offset && !op.group.pipeline_ends;
  std::int64_t apart = shard.elements(); // neighbours along the axis
  for (Axis axis : all_axes) {
    auto const i = static_cast<std::size_t>(axis);
    bool const shares = op.group.axes.contains(axis) && degree(plan, axis) > 1;
    is_own_shard = is_own_shard && shard.stride[i] == (shares ? apart : whole.stride[i]);
    apart *= shares ? degree(plan, axis) : 1;
  }
  return is_own_shard ? std::string{} : fmt::format("{} in place, but not on the rank's own shard", op.name);
}

// Shards lie side by side, along the axes in rank order.
std::string shard_finding(Plan const& plan, Op const& op, Tensor const& tensor) {
  std::int64_t apart = tensor.whole_elements > 0 ? tensor.whole_elements : tensor.elements();
  for (Axis axis : all_axes) {
    std::int64_t const stride = tensor.stride[static_cast<std::size_t>(axis)];
    if (stride == 0 || degree(plan, axis) == 1)
      continue;
    if (stride != apart)
      return fmt::format("{}: shards of {} elements stand {} apart", op.name, apart, stride);
    apart *= degree(plan, axis);
  }
  if (tensor.whole_elements > 0 && (tensor.offset < 0 || tensor.offset + tensor.elements() > tensor.whole_elements))
    return fmt::format("{}: {} does not lie inside the shard", op.name, tensor.name);
  return {};
}

// A part of a layer's activations is one of equal slices of its buffer.
std::string slice_finding(Op const& op, Tensor const& tensor) {
  using Scope = BufferRef::Scope;
  Scope const scope = tensor.buffer.scope;
  if (scope == Scope::parameter || scope == Scope::gradient || tensor.offset == 0 ||
      (tensor.elements() > 0 && tensor.offset % tensor.elements() == 0))
    return {};
  return fmt::format("{}: {} begins inside a slice of {} elements", op.name, tensor.name, tensor.elements());
}

// Ranks of the group that add the same squares to the norm.
double expected_scale(Plan const& plan, Op const& op, Operands const& o) {
  switch (op.kind) {
    case OpKind::loss_forward:
    case OpKind::loss_backward: return 1.0 / static_cast<double>(plan.global_batch * plan.sequence_length);
    case OpKind::norm_squared: {
      double holders = 1;
      for (Axis axis : all_axes)
        if (degree(plan, axis) > 1 && o.reads[0]->placement[axis] == replicated &&
            o.writes[0]->placement[axis] == partial_sum)
          holders *= axis == Axis::pp ? 2 : degree(plan, axis);
      return 1 / holders;
    }
    default: return op.scale;
  }
}

// Layer ops are the same whatever the stage: along pp only step-level ops have rules.
std::vector<std::string> rule_findings(Plan const& plan, Op const& op, Operands const& o, bool step_level) {
  std::vector<std::string> findings;
  for (Axis axis : all_axes) {
    if (degree(plan, axis) == 1 || (axis == Axis::pp && !step_level))
      continue;
    std::string reason;
    auto const placements = written_placements(op, o, axis, &reason);
    if (!placements) {
      findings.push_back(reason);
      continue;
    }
    for (std::size_t i = 0; i < placements->size(); ++i)
      if ((*placements)[i] != o.writes[i]->placement[axis])
        findings.push_back(fmt::format("{} writes {} as {}, which does not follow from what it reads", op.name,
                                       o.writes[i]->name, to_string(o.writes[i]->placement)));
  }
  if (std::string finding = size_finding(plan, op, o); !finding.empty())
    findings.push_back(std::move(finding));
  if (std::string finding = codes_finding(plan, op, o); !finding.empty())
    findings.push_back(std::move(finding));
  if (std::string finding = in_place_finding(plan, op, o); !finding.empty())
    findings.push_back(std::move(finding));
  if (std::abs(op.scale - expected_scale(plan, op, o)) > 1e-15)
    findings.push_back(fmt::format("{} scales by {} instead of {}", op.name, op.scale, expected_scale(plan, op, o)));
  for (auto const* tensors : {&o.reads, &o.writes})
    for (Tensor const* tensor : *tensors)
      if (std::string finding = slice_finding(op, *tensor); !step_level && !finding.empty())
        findings.push_back(std::move(finding));
  for (Tensor const* tensor : o.writes)
    if (std::string finding = shard_finding(plan, op, *tensor); !finding.empty())
      findings.push_back(std::move(finding));
  return findings;
}

std::vector<std::string> check_rules(Program const& program, StageProgram const& stage) {
  std::vector<std::string> findings;
  auto append = [&](std::vector<std::string> more) {
    findings.insert(findings.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  std::set<int> used;
  for (StageLayer const& layer : stage.layers)
    if (layer.program >= 0)
      used.insert(layer.program);
  for (int index : used) {
    LayerProgram const& layer = program.layer_programs[static_cast<std::size_t>(index)];
    for (SlotKind kind : slot_kinds)
      for (Op const& op : ops_of(layer, kind))
        append(rule_findings(program.plan, op, operands_of(layer, op), false));
  }
  for (Element const& element : stage.elements)
    if (Op const* op = std::get_if<Op>(&element))
      append(rule_findings(program.plan, *op, operands_of(stage, *op), true));
  return findings;
}

// --------------------------------------------------------------------------------------------------------- across ranks

// One transfer as a member sees it; equal for all members of a right program.
struct TransferSignature {
  OpKind kind;
  std::int64_t elements;
  DType dtype;
  std::int64_t micro_batch;
  std::int32_t boundary;
  friend auto operator<=>(TransferSignature const&, TransferSignature const&) = default;
};

using CommunicatorName = std::tuple<Group, Channel, bool>; // the last: a channel

// The transfers of a stage between stages, by communicator, in issue order.
std::map<CommunicatorName, std::vector<TransferSignature>> transfers_between_stages(StageProgram const& stage) {
  std::map<CommunicatorName, std::vector<TransferSignature>> transfers;
  for (Element const& element : stage.elements) {
    Op const* op = std::get_if<Op>(&element);
    if (op == nullptr || !is_communication(op->kind))
      continue;
    bool const collective = is_collective(op->kind);
    if (collective && !op->group.axes.contains(Axis::pp))
      continue; // all members run this very program
    Tensor const& tensor = stage[op->kind == OpKind::receive ? op->writes[0] : op->reads[0]];
    TransferSignature const signature{collective ? op->kind : OpKind::send, tensor.elements(), tensor.dtype,
                                      op->micro_batch.value(), collective ? -1 : tensor.buffer.index};
    transfers[collective ? CommunicatorName{op->group, {}, false} : CommunicatorName{{}, op->channel, true}].push_back(
        signature);
  }
  return transfers;
}

std::vector<Finding> check_matching(Program const& program) {
  std::vector<std::map<CommunicatorName, std::vector<TransferSignature>>> by_stage;
  for (StageProgram const& stage : program.stages)
    by_stage.push_back(transfers_between_stages(stage));
  auto const stage_count = static_cast<int>(by_stage.size());
  std::vector<Finding> findings;
  for (int s = 0; s < stage_count; ++s) {
    for (auto const& [name, list] : by_stage[static_cast<std::size_t>(s)]) {
      auto const& [group, channel, is_channel] = name;
      std::vector<int> others;
      if (is_channel)
        others = {channel.from.value(), channel.to.value()};
      else if (group.pipeline_ends)
        others = {0, stage_count - 1};
      else
        for (int other = 0; other < stage_count; ++other)
          others.push_back(other);
      if (std::find(others.begin(), others.end(), s) == others.end())
        findings.push_back({Stage(s), "enters a communicator that it is not a member of"});
      for (int other : others) {
        auto const& transfers = by_stage[static_cast<std::size_t>(other)];
        auto const found = transfers.find(name);
        if (found == transfers.end() || found->second != list)
          findings.push_back(
              {Stage(s), fmt::format("{}: stage {} enters other transfers, or in another order",
                                     is_channel ? "a channel between stages" : to_string(group.axes), other)});
      }
    }
  }
  return findings;
}

// A circle of waits among all stages, found by running everything that can run.
std::vector<Finding> check_progress(Program const& program) {
  struct StageRun {
    std::vector<Instance> instances;
    std::vector<std::int32_t> before;
    std::vector<bool> ended;
    std::vector<std::int32_t> transfer_index; // its number in its communicator, or -1
    std::size_t host_blocked_at = 0;          // nothing behind this position is issued
  };
  std::vector<StageRun> runs;
  std::map<CommunicatorName, std::map<std::int32_t, int>> entered; // transfers waiting for members
  for (StageProgram const& stage : program.stages) {
    StageRun run;
    run.instances = instances_of(program, stage);
    run.before.assign(run.instances.size(), -1);
    run.ended.assign(run.instances.size(), false);
    run.transfer_index.assign(run.instances.size(), -1);
    std::array<std::int32_t, stream_count> tail{};
    tail.fill(-1);
    std::map<CommunicatorName, std::int32_t> count;
    for (std::size_t i = 0; i < run.instances.size(); ++i) {
      Op const& op = *run.instances[i].op;
      auto& last = tail[static_cast<std::size_t>(op.stream)];
      run.before[i] = last;
      last = static_cast<std::int32_t>(i);
      bool const collective = is_collective(op.kind);
      if (is_communication(op.kind) && (!collective || op.group.axes.contains(Axis::pp)))
        run.transfer_index[i] =
            count[collective ? CommunicatorName{op.group, {}, false} : CommunicatorName{{}, op.channel, true}]++;
    }
    runs.push_back(std::move(run));
  }
  auto member_count = [&](Op const& op) {
    return !is_collective(op.kind) || op.group.pipeline_ends ? 2 : program.plan.pp;
  };
  std::vector<std::set<std::size_t>> entered_by(runs.size());
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t s = 0; s < runs.size(); ++s) {
      StageRun& run = runs[s];
      for (std::size_t i = run.host_blocked_at; i < run.instances.size(); ++i) {
        Instance const& instance = run.instances[i];
        if (!run.ended[i]) {
          bool ready = run.before[i] < 0 || run.ended[static_cast<std::size_t>(run.before[i])];
          for (std::int32_t wait : instance.waits)
            ready = ready && run.ended[static_cast<std::size_t>(wait)];
          if (ready && run.transfer_index[i] >= 0) {
            Op const& op = *instance.op;
            auto& members_there =
                entered[is_collective(op.kind) ? CommunicatorName{op.group, {}, false}
                                               : CommunicatorName{{}, op.channel, true}][run.transfer_index[i]];
            if (entered_by[s].insert(i).second) {
              ++members_there;
              progress = true;
            }
            ready = members_there == member_count(op);
          }
          if (ready) {
            run.ended[i] = true;
            progress = true;
          }
        }
        if (instance.op->host_sync && !run.ended[i])
          break;
      }
      while (run.host_blocked_at < run.instances.size() && run.ended[run.host_blocked_at])
        ++run.host_blocked_at;
    }
  }
  std::vector<Finding> findings;
  for (std::size_t s = 0; s < runs.size(); ++s)
    if (runs[s].host_blocked_at < runs[s].instances.size())
      findings.push_back(
          {Stage(static_cast<std::int64_t>(s)), fmt::format("{} never ends: its members wait in a circle",
                                                            runs[s].instances[runs[s].host_blocked_at].op->name)});
  return findings;
}

} // namespace

std::vector<Coordinate> corner_ranks(Plan const& plan, Stage stage) {
  Coordinate first, last;
  for (Axis axis : all_axes)
    last[axis] = degree(plan, axis) - 1;
  first.pp = last.pp = stage.value();
  return first == last ? std::vector{first} : std::vector{first, last};
}

std::vector<Finding> verify(Program const& program, std::size_t limit) {
  std::vector<Finding> findings;
  for (StageProgram const& stage : program.stages) {
    auto append = [&](std::vector<std::string> texts) {
      for (std::size_t i = 0; i < std::min(limit, texts.size()); ++i)
        findings.push_back({stage.stage, std::move(texts[i])});
    };
    append(check_rules(program, stage));
    for (Coordinate const& at : corner_ranks(program.plan, stage.stage)) {
      append(ContentCheck(program, stage, at, limit).run());
      append(StageOrder(program, stage, at).findings(limit));
    }
  }
  std::vector<Finding> matching = check_matching(program);
  bool const all_match = matching.empty();
  findings.insert(findings.end(), matching.begin(), matching.end());
  if (all_match) {
    std::vector<Finding> const stuck = check_progress(program);
    findings.insert(findings.end(), stuck.begin(), stuck.end());
  }
  return findings;
}

} // namespace foreplan

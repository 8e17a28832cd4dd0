#include "program/program.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace foreplan {

Placement placed(Placement placement, AxisSet axes, AxisPlacement along) {
  for (Axis axis : all_axes)
    if (axes.contains(axis))
      placement[axis] = along;
  return placement;
}

std::array<std::int64_t, axis_count> shard_strides(Plan const& plan, AxisSet axes, std::int64_t elements) {
  std::array<std::int64_t, axis_count> strides{};
  for (Axis axis : all_axes)
    if (axes.contains(axis)) {
      strides[static_cast<std::size_t>(axis)] = elements;
      elements *= degree(plan, axis);
    }
  return strides;
}

std::string to_string(Placement const& placement) {
  std::string text;
  for (Axis axis : all_axes) {
    AxisPlacement const& on = placement[axis];
    if (on == replicated)
      continue;
    if (!text.empty())
      text += ", ";
    text += to_string(AxisSet(axis));
    switch (on.kind) {
      case AxisPlacement::Kind::replicated: break;
      case AxisPlacement::Kind::sharded: text += fmt::format(" shard {}", on.dimension); break;
      case AxisPlacement::Kind::partial_sum: text += " partial sum"; break;
      case AxisPlacement::Kind::partial_max: text += " partial maximum"; break;
      case AxisPlacement::Kind::terms: text += " terms of its shard"; break;
    }
  }
  return text.empty() ? "replicated" : text;
}

std::string_view to_string(Category category) {
  switch (category) {
    case Category::parameters: return "parameters";
    case Category::gradients: return "gradients";
    case Category::optimizer: return "optimizer";
    case Category::activations: return "activations";
    case Category::logits: return "logits";
    case Category::communication: return "communication";
    case Category::scratch: return "scratch";
  }
  return "?";
}

std::string_view to_string(Stream stream) {
  switch (stream) {
    case Stream::compute: return "compute";
    case Stream::tp: return "tp";
    case Stream::cp: return "cp";
    case Stream::dp: return "dp";
    case Stream::replica: return "replica";
    case Stream::copy_down: return "copy down";
    case Stream::copy_up: return "copy up";
    case Stream::host: return "host";
    case Stream::disk_read: return "disk read";
    case Stream::disk_write: return "disk write";
    case Stream::send_activation: return "send activation";
    case Stream::receive_activation: return "receive activation";
    case Stream::send_gradient: return "send gradient";
    case Stream::receive_gradient: return "receive gradient";
  }
  return "?";
}

std::string_view to_string(SlotKind kind) {
  switch (kind) {
    case SlotKind::forward: return "forward";
    case SlotKind::backward: return "backward";
    case SlotKind::weight_gradient: return "weight gradient";
  }
  return "?";
}

char letter(SlotKind kind) { return kind == SlotKind::forward ? 'F' : kind == SlotKind::backward ? 'B' : 'W'; }

std::vector<Op> const& ops_of(LayerProgram const& layer, SlotKind kind) {
  switch (kind) {
    case SlotKind::forward: return layer.forward;
    case SlotKind::backward: return layer.backward;
    case SlotKind::weight_gradient: break;
  }
  return layer.weight_gradient;
}

std::vector<Op>& ops_of(LayerProgram& layer, SlotKind kind) {
  return const_cast<std::vector<Op>&>(ops_of(static_cast<LayerProgram const&>(layer), kind));
}

PassBreaks breaks_of(std::vector<Op> const& ops) {
  auto const taking = std::find_if(ops.begin(), ops.end(), [](Op const& op) { return op.takes_over; });
  auto const left = std::find_if(ops.begin(), ops.end(), [](Op const& op) { return op.left_over; });
  auto const place = [&](auto found) { return static_cast<std::size_t>(found - ops.begin()); };
  return {taking == ops.end() ? 0 : place(taking), place(left), ops.size()};
}

BreaksOfLayers breaks_of(Program const& program) {
  BreaksOfLayers breaks(program.layer_programs.size());
  for (std::size_t i = 0; i < breaks.size(); ++i)
    for (SlotKind kind : slot_kinds)
      breaks[i][static_cast<std::size_t>(kind)] = breaks_of(ops_of(program.layer_programs[i], kind));
  return breaks;
}

std::vector<LayerPiece> pieces_of(StageProgram const& stage, Slot const& slot, BreaksOfLayers const& breaks) {
  std::vector<LayerPiece> pieces;
  LayerPiece left_over;
  auto finish_layer_before = [&] {
    if (left_over.first < left_over.last)
      pieces.push_back(left_over);
  };
  for (int i = 0; i < slot.last - slot.first; ++i) {
    int const layer = layer_of(slot, i);
    auto const program = static_cast<std::size_t>(stage.layers[static_cast<std::size_t>(layer)].program);
    PassBreaks const& at = breaks[program][static_cast<std::size_t>(slot.kind)];
    if (at.takes_over > 0 && i > 0) {
      pieces.push_back({layer, 0, at.takes_over});
      finish_layer_before();
      pieces.push_back({layer, at.takes_over, at.left_over});
    } else {
      finish_layer_before();
      pieces.push_back({layer, 0, at.left_over});
    }
    left_over = {layer, at.left_over, at.size};
  }
  finish_layer_before();
  return pieces;
}

std::vector<Rank> members_of(Plan const& plan, Rank rank, Group const& group) {
  std::vector<Rank> members = group_of(plan, rank, group.axes);
  if (group.pipeline_ends)
    std::erase_if(members, [&](Rank member) {
      int const stage = coordinate_of(plan, member).pp;
      return stage != 0 && stage != plan.pp - 1;
    });
  return members;
}

bool is_collective(OpKind kind) {
  switch (kind) {
    case OpKind::all_reduce:
    case OpKind::all_gather:
    case OpKind::reduce_scatter:
    case OpKind::all_to_all:
    case OpKind::ring_shift: return true;
    default: return false;
  }
}

bool is_communication(OpKind kind) { return is_collective(kind) || kind == OpKind::send || kind == OpKind::receive; }

std::string_view to_string(OpKind kind) {
  switch (kind) {
    case OpKind::embedding_forward: return "embedding_forward";
    case OpKind::embedding_backward: return "embedding_backward";
    case OpKind::add_positions: return "add_positions";
    case OpKind::position_gradient: return "position_gradient";
    case OpKind::loss_maximum: return "loss_maximum";
    case OpKind::loss_sums: return "loss_sums";
    case OpKind::loss_forward: return "loss_forward";
    case OpKind::loss_backward: return "loss_backward";
    case OpKind::norm_forward: return "norm_forward";
    case OpKind::norm_backward: return "norm_backward";
    case OpKind::linear_forward: return "linear_forward";
    case OpKind::linear_input_gradient: return "linear_input_gradient";
    case OpKind::linear_weight_gradient: return "linear_weight_gradient";
    case OpKind::accumulate: return "accumulate";
    case OpKind::rope_forward: return "rope_forward";
    case OpKind::rope_backward: return "rope_backward";
    case OpKind::attention_forward: return "attention_forward";
    case OpKind::attention_backward: return "attention_backward";
    case OpKind::attention_scores: return "attention_scores";
    case OpKind::attention_softmax: return "attention_softmax";
    case OpKind::attention_context: return "attention_context";
    case OpKind::attention_context_backward: return "attention_context_backward";
    case OpKind::attention_softmax_backward: return "attention_softmax_backward";
    case OpKind::attention_scores_backward: return "attention_scores_backward";
    case OpKind::gelu_forward: return "gelu_forward";
    case OpKind::gelu_backward: return "gelu_backward";
    case OpKind::swiglu_forward: return "swiglu_forward";
    case OpKind::swiglu_backward: return "swiglu_backward";
    case OpKind::add: return "add";
    case OpKind::bias_add: return "bias_add";
    case OpKind::bias_gradient: return "bias_gradient";
    case OpKind::dropout_forward: return "dropout_forward";
    case OpKind::dropout_backward: return "dropout_backward";
    case OpKind::dropout_mask: return "dropout_mask";
    case OpKind::zero_fill: return "zero_fill";
    case OpKind::cast: return "cast";
    case OpKind::copy: return "copy";
    case OpKind::quantize: return "quantize";
    case OpKind::dequantize: return "dequantize";
    case OpKind::requantize: return "requantize";
    case OpKind::norm_squared: return "norm_squared";
    case OpKind::adam: return "adam";
    case OpKind::all_reduce: return "all_reduce";
    case OpKind::all_gather: return "all_gather";
    case OpKind::reduce_scatter: return "reduce_scatter";
    case OpKind::all_to_all: return "all_to_all";
    case OpKind::ring_shift: return "ring_shift";
    case OpKind::take_keys_values: return "take_keys_values";
    case OpKind::put_keys_values: return "put_keys_values";
    case OpKind::attention_merge: return "attention_merge";
    case OpKind::pack_heads: return "pack_heads";
    case OpKind::unpack_heads: return "unpack_heads";
    case OpKind::send: return "send";
    case OpKind::receive: return "receive";
    case OpKind::wait: return "wait";
  }
  return "?";
}

} // namespace foreplan

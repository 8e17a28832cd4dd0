// Domino (arXiv 2409.15241), row split: a micro-batch is cut into slices that need nothing of each other inside the
// layer, so that the reduction of one slice's partial sums runs under the work on other slices. A slice is a view of
// the layer's tensors: weights, memory and result stay as they are. A block's four products cut it into sections; a
// form says in which order the host issues the sections of the slices, and thereby what a reduction hides under:
//   paper        half by half, in each slice by slice; backward the last slice first
//   inter_layer  DominoTransformer.inter_layer_overlap_forward: a slice's second product comes behind the first one,
//                and the norm, of the slice that is next. (A layer's first norm comes behind the last product of the
//                layer before, there in front of it)
//   intra_layer  DominoTransformer.intra_layer_overlap_forward: so in the MLP alone, and a layer waits for its
//                reductions
// The backward of the released forms is their forward backwards, as autograd runs it. The first two leave what needs a
// layer's last reductions to the next layer. With the column split (split_columns.cpp) every layer waits for its own.
#include "program/layer_passes/layer_passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace foreplan {

namespace {

// Of a block; 1: attention, 2: MLP.
enum class Section { norm_1, first_1, second_1, norm_2, first_2, second_2, end };

struct Turn {
  Section section;
  int slice;
  bool left_over = false;  // to the next layer
  bool takes_over = false; // what the layer before has left over comes first
};

struct Issue {
  std::vector<Turn> forward, backward;
};

Issue paper(int slices) {
  using enum Section;
  Issue issue;
  for (std::vector<Section> const& half : {std::vector{norm_1, first_1, second_1}, {norm_2, first_2, second_2}})
    for (int i = 0; i < slices; ++i)
      for (Section section : half)
        issue.forward.push_back({section, i, false, section == norm_1 && i == 1});
  for (int i = 0; i < slices; ++i)
    issue.forward.push_back({end, i, i > 0});
  int const last = slices - 1;
  for (std::vector<Section> const& half : {std::vector{end, second_2, first_2}, {norm_2, second_1, first_1}})
    for (int i = last; i >= 0; --i)
      for (Section section : half)
        issue.backward.push_back({section, i, false, section == end && i == last - 1});
  for (int i = last; i >= 0; --i)
    issue.backward.push_back({norm_1, i, i < last});
  return issue;
}

Issue inter_layer(int slices) {
  using enum Section;
  Issue issue;
  int const last = slices - 1;
  auto in_front_of_next = [&](bool mlp, int i) {
    return i < last ? Turn{mlp ? norm_2 : norm_1, i + 1} : Turn{mlp ? end : norm_2, 0};
  };
  issue.forward.push_back({norm_1, 0});
  for (bool mlp : {false, true})
    for (int i = 0; i < slices; ++i) {
      issue.forward.push_back({mlp ? first_2 : first_1, i});
      issue.forward.push_back(in_front_of_next(mlp, i));
      issue.forward.back().takes_over = !mlp && i == 0;
      issue.forward.push_back({mlp ? second_2 : second_1, i});
    }
  for (int i = 1; i < slices; ++i)
    issue.forward.push_back({end, i, true});
  for (int i = last; i > 0; --i)
    issue.backward.push_back({end, i});
  for (bool mlp : {true, false})
    for (int i = last; i >= 0; --i) {
      issue.backward.push_back({mlp ? second_2 : second_1, i});
      issue.backward.push_back(in_front_of_next(mlp, i));
      issue.backward.back().takes_over = mlp && i == last;
      issue.backward.push_back({mlp ? first_2 : first_1, i});
    }
  issue.backward.push_back({norm_1, 0, true});
  return issue;
}

Issue intra_layer(int slices) {
  using enum Section;
  Issue issue;
  for (int i = 0; i < slices; ++i)
    for (Section section : {norm_1, first_1, second_1})
      issue.forward.push_back({section, i});
  issue.forward.insert(issue.forward.end(), {{norm_2, 0}, {first_2, 0}});
  for (int i = 1; i < slices; ++i)
    issue.forward.insert(issue.forward.end(), {{norm_2, i}, {second_2, i - 1}, {first_2, i}});
  issue.forward.push_back({second_2, slices - 1});
  for (int i = 0; i < slices; ++i)
    issue.forward.push_back({end, i});
  issue.backward.assign(issue.forward.rbegin(), issue.forward.rend());
  return issue;
}

Issue issue_of(Plan const& plan) {
  switch (plan.domino) {
    case Domino::paper: return paper(plan.domino_slices);
    case Domino::inter_layer: return inter_layer(plan.domino_slices);
    case Domino::intra_layer: return intra_layer(plan.domino_slices);
  }
  return {};
}

using Sections = std::map<Section, std::vector<Op>>;

Sections sections_of_forward(std::vector<Op> const& ops) {
  using enum Section;
  constexpr std::array products{first_1, second_1, first_2, second_2};
  Sections sections;
  Section section = norm_1;
  std::size_t product = 0;
  for (Op const& op : ops) {
    if (op.kind == OpKind::linear_forward)
      section = products[product++];
    else if (section == second_1 || section == second_2)
      section = section == second_1 ? norm_2 : end;
    sections[section].push_back(op);
  }
  return sections;
}

// Both products of a linear belong to its section.
Sections sections_of_backward(std::vector<Op> const& ops) {
  using enum Section;
  constexpr std::array behind_product{first_2, norm_2, first_1, norm_1};
  Sections sections;
  Section section = end;
  std::size_t product = 0;
  for (Op const& op : ops) {
    if (op.kind == OpKind::linear_input_gradient && (section == end || section == norm_2))
      section = section == end ? second_2 : second_1;
    sections[section].push_back(op);
    if (op.kind == OpKind::linear_weight_gradient)
      section = behind_product[product++];
  }
  return sections;
}

class Slicer {
public:
  Slicer(LayerProgram& layer, int slices, bool layers_overlap)
      : layer_(layer), slices_(slices), layers_overlap_(layers_overlap) {
    for (SlotKind kind : slot_kinds)
      for (Op const& op : ops_of(layer, kind))
        next_op_ = std::max(next_op_, op.id.value() + 1);
  }

  std::vector<Op> rewrite(Sections const& sections, std::vector<Turn> const& turns) {
    std::vector<Op> result;
    bool takes_over = false;
    for (Turn const& turn : turns) {
      takes_over = layers_overlap_ && (takes_over || turn.takes_over);
      auto const section = sections.find(turn.section);
      if (section == sections.end()) // the backward of a model without biases has none at the end
        continue;
      for (Op const& op : section->second) {
        result.push_back(slice_of(op, turn.slice));
        result.back().left_over = layers_overlap_ && turn.left_over;
        result.back().takes_over = std::exchange(takes_over, false);
      }
    }
    return result;
  }

private:
  Op slice_of(Op op, int slice) {
    op.id = OpId(next_op_++);
    op.name += fmt::format(", slice {}", slice);
    for (std::vector<TensorId>* ids : {&op.reads, &op.writes})
      for (TensorId& id : *ids)
        id = slice_of(id, slice);
    return op;
  }

  // Dimension 0 of what belongs to tokens counts them, or sequences.
  TensorId slice_of(TensorId id, int slice) {
    BufferRef::Scope const scope = layer_[id].buffer.scope;
    if (scope == BufferRef::Scope::parameter || scope == BufferRef::Scope::gradient)
      return id;
    auto const [found, is_new] = slices_of_.try_emplace({id, slice});
    if (!is_new)
      return found->second;
    Tensor view = layer_[id];
    view.name += fmt::format(", slice {}", slice);
    view.shape[0] /= slices_;
    view.offset += slice * view.elements();
    layer_.tensors.push_back(std::move(view));
    return found->second = TensorId(static_cast<std::int64_t>(layer_.tensors.size()) - 1);
  }

  LayerProgram& layer_;
  int slices_;
  bool layers_overlap_;
  std::int32_t next_op_ = 0;
  std::map<std::pair<TensorId, int>, TensorId> slices_of_;
};

} // namespace

void domino(LayerProgram& layer, Plan const& plan) {
  if (plan.domino_slices == 1 || layer.kind != LayerKind::block)
    return;
  Issue const issue = issue_of(plan);
  Slicer slicer(layer, plan.domino_slices, plan.domino != Domino::intra_layer && plan.domino_columns == 1);
  layer.forward = slicer.rewrite(sections_of_forward(layer.forward), issue.forward);
  layer.backward = slicer.rewrite(sections_of_backward(layer.backward), issue.backward);
}

} // namespace foreplan

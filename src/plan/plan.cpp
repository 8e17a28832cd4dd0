#include "plan/plan.hpp"

#include "plan/words.hpp"

#include <fmt/format.h>

namespace foreplan {

std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
    case DType::fp16: return 2;
    case DType::fp32:
    case DType::int32: return 4;
    case DType::uint8: return 1;
  }
  return 0;
}

bool splits_backward(Schedule schedule) { return schedule >= Schedule::zb_h1; }

bool is_v_shaped(Schedule schedule) { return schedule >= Schedule::zb_v; }

bool has_chunks(Schedule schedule) { return schedule == Schedule::interleaved || is_v_shaped(schedule); }

std::string_view to_string(MemoryTier tier) { return word_of(tier); }
std::string_view to_string(Domino form) { return word_of(form); }
std::string_view to_string(Schedule schedule) { return word_of(schedule); }
std::string_view to_string(Recompute recompute) { return word_of(recompute); }
std::string_view to_string(Attention attention) { return word_of(attention); }
std::string_view to_string(P2p p2p) { return word_of(p2p); }
std::string_view to_string(LayerPlacement placement) { return word_of(placement); }
std::string_view to_string(Reshard reshard) { return word_of(reshard); }
std::string_view to_string(ContextParallel type) { return word_of(type); }

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::int32: return "int32";
    case DType::uint8: return "uint8";
    default: return word_of(dtype);
  }
}

std::string layout_text(std::vector<int> const& layout) {
  std::string text;
  for (std::size_t first = 0, end = 0; first < layout.size(); first = end) {
    while (end < layout.size() && layout[end] == layout[first])
      ++end;
    text += first > 0 ? "," : "";
    text += end - first > 1 ? fmt::format("{}*{}", layout[first], end - first) : fmt::format("{}", layout[first]);
  }
  return text;
}

int column_slices(Plan const& plan) {
  constexpr int user_buffer_splits = 4; // Transformer Engine, module/base.py: initialize_ub, num_splits
  return plan.tp_overlap ? user_buffer_splits : plan.domino_columns;
}

namespace {

std::string_view place_of(MemoryTier tier) { return tier == MemoryTier::disk ? "drives" : "the host"; }

} // namespace

std::string describe(Plan const& plan) {
  std::string text = fmt::format("tp {}, pp {}, dp {}", plan.tp, plan.pp, plan.dp);
  if (plan.cp > 1)
    text += fmt::format(", cp {} ({})", plan.cp, to_string(plan.cp_type));
  if (plan.chunks > 1)
    text += fmt::format(", {} chunks", plan.chunks);
  if (!plan.layout.empty())
    text += fmt::format(", layout {}", layout_text(plan.layout));
  if (plan.sequence_parallel)
    text += ", sequence parallel";
  if (plan.tp_overlap)
    text += ", tp overlapped";
  if (plan.domino_slices > 1 || plan.domino_columns > 1) {
    text += fmt::format(", Domino {}", plan.domino_slices);
    if (plan.domino_columns > 1)
      text += fmt::format(" x {} columns", plan.domino_columns);
    if (plan.domino != Domino::paper)
      text += fmt::format(" {}", to_string(plan.domino));
  }
  if (plan.tp_bits > 0)
    text += fmt::format(", sums over tp int{}", plan.tp_bits);
  text += fmt::format(", zero {}", plan.zero_stage);
  if (plan.zero_group > 0)
    text += fmt::format(" in groups of {}", plan.zero_group);
  if (plan.sharding.inner_group > 0)
    text += fmt::format(", {} {}", plan.sharding.secondary_shard ? "hpZ" : "inner groups of",
                        plan.sharding.inner_group);
  if (plan.sharding.weight_bits > 0)
    text += fmt::format(", qwZ int{}", plan.sharding.weight_bits);
  if (plan.sharding.gradient_bits > 0)
    text += fmt::format(", qgZ int{}", plan.sharding.gradient_bits);
  Offload const& offload = plan.offload;
  if (offload.optimizer != MemoryTier::device)
    text += fmt::format(", {}optimizer on {}",
                        offload.ratio < 1 ? fmt::format("{:.0f} % of the ", 100 * offload.ratio) : "",
                        place_of(offload.optimizer));
  if (offload.parameters != MemoryTier::device)
    text += fmt::format(", parameters on {}", place_of(offload.parameters));
  if (offload.checkpoints)
    text += ", checkpoints on the host";
  text += fmt::format(", micro-batch {}", plan.micro_batch);
  if (plan.schedule != Schedule::one_f_one_b && plan.schedule != Schedule::interleaved)
    text += fmt::format(", {}", to_string(plan.schedule));
  if (plan.loss_chunks > 1)
    text += fmt::format(", loss in {} chunks", plan.loss_chunks);
  if (plan.execution.post_validation && splits_backward(plan.schedule))
    text += ", post-validation";
  if (plan.recompute != Recompute::none) {
    text += fmt::format(", {} recompute", to_string(plan.recompute));
    if (plan.recompute_layers >= 0)
      text += fmt::format(" of {} layers", plan.recompute_layers);
  }
  return text;
}

} // namespace foreplan

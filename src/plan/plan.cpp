#include "plan/plan.hpp"

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

std::string_view to_string(Schedule schedule) {
  switch (schedule) {
    case Schedule::gpipe: return "gpipe";
    case Schedule::one_f_one_b: return "1f1b";
    case Schedule::interleaved: return "interleaved";
    case Schedule::zb_h1: return "zb-h1";
    case Schedule::zb_h2: return "zb-h2";
    case Schedule::zb_v: return "zb-v";
    case Schedule::v_half: return "v-half";
    case Schedule::v_min: return "v-min";
    case Schedule::dualpipe_v: return "dualpipe-v";
  }
  return "?";
}

bool splits_backward(Schedule schedule) { return schedule >= Schedule::zb_h1; }

bool is_v_shaped(Schedule schedule) { return schedule >= Schedule::zb_v; }

bool has_chunks(Schedule schedule) { return schedule == Schedule::interleaved || is_v_shaped(schedule); }

std::string_view to_string(Recompute recompute) {
  switch (recompute) {
    case Recompute::none: return "none";
    case Recompute::selective: return "selective";
    case Recompute::full: return "full";
  }
  return "?";
}

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::bf16: return "bf16";
    case DType::fp16: return "fp16";
    case DType::fp32: return "fp32";
    case DType::int32: return "int32";
    case DType::uint8: return "uint8";
  }
  return "?";
}

std::string_view to_string(Attention attention) { return attention == Attention::fused ? "fused" : "unfused"; }

std::string_view to_string(P2p p2p) { return p2p == P2p::synchronous ? "synchronous" : "overlapped"; }

std::string_view to_string(LayerPlacement placement) {
  return placement == LayerPlacement::even ? "even" : "cost_share";
}

std::string_view to_string(Reshard reshard) {
  switch (reshard) {
    case Reshard::after_use: return "after_use";
    case Reshard::after_backward: return "after_backward";
    case Reshard::after_step: return "after_step";
  }
  return "?";
}

std::string_view to_string(ContextParallel type) {
  switch (type) {
    case ContextParallel::all_gather: return "all_gather";
    case ContextParallel::all_to_all: return "all_to_all";
    case ContextParallel::ring: return "ring";
  }
  return "?";
}

std::string describe(Plan const& plan) {
  std::string text = fmt::format("tp {}, pp {}, dp {}", plan.tp, plan.pp, plan.dp);
  if (plan.cp > 1)
    text += fmt::format(", cp {} ({})", plan.cp, to_string(plan.cp_type));
  if (plan.chunks > 1)
    text += fmt::format(", {} chunks", plan.chunks);
  if (plan.sequence_parallel)
    text += ", sequence parallel";
  if (plan.domino_slices > 1)
    text += fmt::format(", Domino {}", plan.domino_slices);
  text += fmt::format(", zero {}", plan.zero_stage);
  if (plan.zero_group > 0)
    text += fmt::format(" in groups of {}", plan.zero_group);
  if (plan.offload_optimizer)
    text += plan.offload_ratio < 1 ? fmt::format(", {:.0f} % of the optimizer on the host", 100 * plan.offload_ratio)
                                   : std::string(", optimizer on the host");
  text += fmt::format(", micro-batch {}", plan.micro_batch);
  if (plan.schedule != Schedule::one_f_one_b && plan.schedule != Schedule::interleaved)
    text += fmt::format(", {}", to_string(plan.schedule));
  if (plan.recompute != Recompute::none) {
    text += fmt::format(", {} recompute", to_string(plan.recompute));
    if (plan.recompute_layers >= 0)
      text += fmt::format(" of {} layers", plan.recompute_layers);
  }
  return text;
}

} // namespace foreplan

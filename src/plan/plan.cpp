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
  if (plan.offload.optimizer != MemoryTier::device)
    text += plan.offload.ratio < 1 ? fmt::format(", {:.0f} % of the optimizer on the host", 100 * plan.offload.ratio)
                                   : std::string(", optimizer on the host");
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

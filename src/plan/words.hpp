// The words of a plan's choices: one table each for files, options and tables of results.
#pragma once

#include "plan/plan.hpp"

#include <array>
#include <string_view>
#include <utility>

namespace foreplan {

template <class T, std::size_t n>
using Words = std::array<std::pair<std::string_view, T>, n>;

// words<Schedule>: every word and what it means.
template <class T>
inline constexpr int words = 0;

template <>
inline constexpr Words<Schedule, schedule_count> words<Schedule>{{{"gpipe", Schedule::gpipe},
                                                                  {"1f1b", Schedule::one_f_one_b},
                                                                  {"interleaved", Schedule::interleaved},
                                                                  {"zb-h1", Schedule::zb_h1},
                                                                  {"zb-h2", Schedule::zb_h2},
                                                                  {"zb-v", Schedule::zb_v},
                                                                  {"v-half", Schedule::v_half},
                                                                  {"v-min", Schedule::v_min},
                                                                  {"dualpipe-v", Schedule::dualpipe_v}}};
template <>
inline constexpr Words<MemoryTier, memory_tier_count> words<MemoryTier>{
    {{"device", MemoryTier::device}, {"host", MemoryTier::host}, {"disk", MemoryTier::disk}}};
template <>
inline constexpr Words<Recompute, 3> words<Recompute>{
    {{"none", Recompute::none}, {"selective", Recompute::selective}, {"full", Recompute::full}}};
template <> // what a plan may choose; int32 and uint8 are the program's own
inline constexpr Words<DType, 3> words<DType>{{{"bf16", DType::bf16}, {"fp16", DType::fp16}, {"fp32", DType::fp32}}};
template <>
inline constexpr Words<Attention, 2> words<Attention>{{{"fused", Attention::fused}, {"unfused", Attention::unfused}}};
template <>
inline constexpr Words<P2p, 2> words<P2p>{{{"synchronous", P2p::synchronous}, {"overlapped", P2p::overlapped}}};
template <>
inline constexpr Words<LayerPlacement, 2> words<LayerPlacement>{
    {{"even", LayerPlacement::even}, {"cost_share", LayerPlacement::cost_share}}};
template <>
inline constexpr Words<Reshard, 3> words<Reshard>{{{"after_use", Reshard::after_use},
                                                   {"after_backward", Reshard::after_backward},
                                                   {"after_step", Reshard::after_step}}};
template <>
inline constexpr Words<ContextParallel, 3> words<ContextParallel>{{{"all_gather", ContextParallel::all_gather},
                                                                   {"all_to_all", ContextParallel::all_to_all},
                                                                   {"ring", ContextParallel::ring}}};
template <>
inline constexpr Words<Domino, 3> words<Domino>{
    {{"paper", Domino::paper}, {"inter_layer", Domino::inter_layer}, {"intra_layer", Domino::intra_layer}}};

template <class T>
constexpr std::string_view word_of(T value) {
  for (auto const& [word, meaning] : words<T>)
    if (meaning == value)
      return word;
  return "?";
}

} // namespace foreplan

// Ranks and their groups. A group is named by the axes along which its members differ: {tp} is a tensor-parallel
// group, {tp, pp} a model-parallel group, all axes the world. Data-parallel ranks form a grid: those along `dp` share out
// the model states among them (ZeRO), those along `replica` hold copies, or (ZeRO++) share them out too, further apart;
// else there is one replica.
#pragma once

#include "plan/plan.hpp"
#include "units/ids.hpp"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace foreplan {

enum class Axis : std::uint8_t { tp, cp, dp, replica, pp }; // in rank order: tp varies fastest
inline constexpr int axis_count = 5;
inline constexpr std::array<Axis, axis_count> all_axes{Axis::tp, Axis::cp, Axis::dp, Axis::replica, Axis::pp};

// A set of axes, as a bit mask.
class AxisSet {
public:
  constexpr AxisSet() = default;
  constexpr AxisSet(Axis axis) : bits_(bit(axis)) {} // an axis is the set of itself
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (Axis axis : axes)
      bits_ |= bit(axis);
  }
  [[nodiscard]] constexpr bool contains(Axis axis) const { return (bits_ & bit(axis)) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  [[nodiscard]] constexpr std::uint8_t bits() const { return bits_; }
  friend constexpr auto operator<=>(AxisSet, AxisSet) = default;
  friend constexpr AxisSet operator|(AxisSet a, AxisSet b) {
    a.bits_ = static_cast<std::uint8_t>(a.bits_ | b.bits_);
    return a;
  }

private:
  static constexpr std::uint8_t bit(Axis axis) { return static_cast<std::uint8_t>(1U << static_cast<unsigned>(axis)); }
  std::uint8_t bits_ = 0;
};

// Along these axes ranks see different tokens and hold the same parameters before any sharding.
inline constexpr AxisSet data_axes{Axis::cp, Axis::dp, Axis::replica};

std::string to_string(AxisSet axes); // "tp", "tp+pp"

struct Coordinate {
  int tp = 0;
  int cp = 0;
  int dp = 0;
  int replica = 0;
  int pp = 0;
  friend auto operator<=>(Coordinate const&, Coordinate const&) = default;
  [[nodiscard]] int along(Axis axis) const {
    switch (axis) {
      case Axis::tp: return tp;
      case Axis::cp: return cp;
      case Axis::dp: return dp;
      case Axis::replica: return replica;
      case Axis::pp: return pp;
    }
    return 0;
  }
  int& operator[](Axis axis) {
    switch (axis) {
      case Axis::tp: return tp;
      case Axis::cp: return cp;
      case Axis::dp: return dp;
      case Axis::replica: return replica;
      case Axis::pp: break;
    }
    return pp;
  }
};

int degree(Plan const& plan, Axis axis);
int group_size(Plan const& plan, AxisSet axes);
// Those of the axes along which there is more than one rank: a group's name is this.
AxisSet nontrivial(Plan const& plan, AxisSet axes);
// The group over which parameters are replicated before any sharding: {dp}, {cp, dp}, ...; {dp} when it is one rank.
AxisSet data_group(Plan const& plan);
// The axes along which the model states are cut: ranks that see different tokens, without copies. Empty: not cut.
AxisSet shard_axes(Plan const& plan);
// Those of them inside an inner group.
AxisSet inner_axes(Plan const& plan);
// Whether ranks along `replica` hold copies of shards.
bool has_copies(Plan const& plan);
// ZeRO-2 and 3: each micro-batch's gradients are reduced and accumulate in the ranks' shards.
bool reduces_every_micro_batch(Plan const& plan);
// Of the gradients that a layer's ops write.
DType layer_gradient_dtype(Plan const& plan);
// 0..plan.dp: which sequences of the global batch a rank works on.
int data_index(Plan const& plan, Coordinate const& coordinate);

// Megatron's default rank order: tp varies fastest, then cp, dp (shards, then replicas), pp.
Coordinate coordinate_of(Plan const& plan, Rank rank);
Rank rank_at(Plan const& plan, Coordinate coordinate);

// Members of the group of `rank` along `axes`, ascending; the position of a rank in it is its index in the group.
std::vector<Rank> group_of(Plan const& plan, Rank rank, AxisSet axes);

// Stages and chunks cut the model into pp * chunks consecutive parts. Chunk c of stage s is part c * pp + s; with a V-shaped
// schedule the second chunk comes back: part 2 pp - 1 - s.
int part_of(Plan const& plan, Stage stage, Chunk chunk);
Stage stage_of_part(Plan const& plan, int part);
bool ends_share_stage(Plan const& plan); // embedding and head

// Layers [first, last) of the model (0 embedding, 1..L blocks, L+1 head) that chunk c of stage s holds.
// As the plan's layout says; without one, by the framework's rule (LayerPlacement). Even: when blocks do not divide,
// embedding and head count as one layer each if that divides, and else the first chunks after the embedding's take one
// more.
struct LayerRange {
  int first = 0;
  int last = 0;
  [[nodiscard]] int size() const { return last - first; }
};
LayerRange layers_of(Model const& model, Plan const& plan, Stage stage, Chunk chunk);

} // namespace foreplan

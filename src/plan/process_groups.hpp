// Ranks and their groups. A group is named by the axes along which its members differ: {tp} is a tensor-parallel
// group, {tp, pp} a model-parallel group, {tp, dp, pp} the world.
#pragma once

#include "plan/plan.hpp"
#include "units/ids.hpp"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace foreplan {

enum class Axis : std::uint8_t { tp, dp, pp };
inline constexpr int axis_count = 3;

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

private:
  static constexpr std::uint8_t bit(Axis axis) { return static_cast<std::uint8_t>(1U << static_cast<unsigned>(axis)); }
  std::uint8_t bits_ = 0;
};

std::string to_string(AxisSet axes); // "tp", "tp+pp"

struct Coordinate {
  int tp = 0;
  int dp = 0;
  int pp = 0;
  friend auto operator<=>(Coordinate const&, Coordinate const&) = default;
  [[nodiscard]] int along(Axis axis) const { return axis == Axis::tp ? tp : axis == Axis::dp ? dp : pp; }
};

int degree(Plan const& plan, Axis axis);
int group_size(Plan const& plan, AxisSet axes);

// Megatron's default rank order: tp varies fastest, then dp, then pp.
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
// As the plan's layout says; without one, blocks are spread evenly; when they do not divide, embedding and head count as one layer each if that divides, and
// else the first chunks after the embedding's take one more.
struct LayerRange {
  int first = 0;
  int last = 0;
  [[nodiscard]] int size() const { return last - first; }
};
LayerRange layers_of(Model const& model, Plan const& plan, Stage stage, Chunk chunk);

} // namespace foreplan

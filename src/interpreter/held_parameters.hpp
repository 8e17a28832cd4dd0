// Where the parameters of a model lie on the ranks of a stage, and where their fp32 masters, which alone are what training
// has learnt: initial values go there, and results come from there.
#pragma once

#include "interpreter/storage.hpp"
#include "program/program.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace foreplan {

// A parameter of a layer in a flat buffer of the stage.
struct HeldParameter {
  int layer = 0;
  Parameter const* parameter = nullptr;
  BufferId parameters;
  std::int64_t offset = 0; // elements
  bool norm_weight = false;
};

// What one adam op works on: a rank's elements [first, first + count) of a bucket of parameters.
struct Master {
  BufferId parameters;     // of the bucket
  std::int64_t offset = 0; // elements
  std::array<std::int64_t, axis_count> stride{};
  std::int64_t count = 0;
  BoundOperand parameter, master, m, v;
  [[nodiscard]] std::int64_t first(Coordinate const& at) const;
  [[nodiscard]] AxisSet shared_over() const; // the ranks along these axes hold a part each
};

// The stage of the head, and so of the loss: not the last one under every schedule.
int stage_of_head(Plan const& plan);

std::vector<HeldParameter> held_parameters(Program const& program, StageProgram const& stage);
std::vector<Master> masters_of(Plan const& plan, StageProgram const& stage, StageStorage const& storage);

// The part of a parameter that the rank at `at` holds the master of: `count` elements from `in_parameter` on lie
// in the master operand from `in_master` on. count <= 0: none.
struct MasterPart {
  std::int64_t in_parameter = 0;
  std::int64_t in_master = 0;
  std::int64_t count = 0;
};
MasterPart part_of(HeldParameter const& held, Master const& master, Coordinate const& at);

} // namespace foreplan

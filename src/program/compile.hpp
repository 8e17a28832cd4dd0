// Compilation of a plan into a program.
#pragma once

#include "program/program.hpp"
#include "units/quantity.hpp"

#include <string>
#include <vector>

namespace foreplan {

// The plan must be legal for the model (plan/plan_checker.hpp). Passes named in `skip` are left out: the result is the
// same program without that strategy, for comparison; it need not be a correct training step. Names: compile_passes().
// `times`, if given, gets the time of every pass, summed over layers or stages.
struct PassTime {
  std::string name;
  Seconds time;
};
Program compile(Model const& model, Plan const& plan, std::vector<std::string> const& skip = {},
                std::vector<PassTime>* times = nullptr);

// Only some of the stages, in the order given: Program::stages then holds these alone. For what looks at one stage at a
// time (memory); such a program cannot be run.
Program compile_stages(Model const& model, Plan const& plan, std::vector<int> const& stages);

// Names of the passes, in order.
std::vector<std::string> compile_passes();

} // namespace foreplan

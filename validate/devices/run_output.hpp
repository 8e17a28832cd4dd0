// What a run has measured, for people and for programs.
#pragma once

#include "validate/devices/measure.hpp"

#include <ostream>
#include <string>

namespace foreplan {

struct RunSetup {
  Storage storage = Storage::as_planned;
  int threads = 1;
  int cores = 1;         // of rank 0's node that the job may use
  int ranks_of_node = 1; // of rank 0's
};

std::string to_text(Program const& program, Run const& run, RunSetup const& setup);

// "format": "foreplan run 1"; its fields are explained in validate/README.md.
void write_json(std::ostream& out, Program const& program, Run const& run, RunSetup const& setup);

void write_trace(std::ostream& out, Program const& program, Run const& run);

} // namespace foreplan

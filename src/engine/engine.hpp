// The engines: they run a folded program and return its timeline. The semantics stand in folded_program.hpp.
#pragma once

#include "engine/folded_program.hpp"
#include "timeline/timeline.hpp"

namespace foreplan {

struct RunOptions {
  bool keep_entries = true; // without: Timeline::classes holds an empty list for each class
};

// Both throw std::invalid_argument for a program that breaks the rules of folded_program.hpp, and std::runtime_error
// for one that cannot go on; the text names the first item of each stuck stream.
//
// Fair sharing with feedback can be chaotic (many pipeline stages over one link): there rounding alone moves results,
// and the engines differ by as much as one of them from itself with inputs changed by 1e-15.

// Small event loop; time linear in items; any number of threads may run it at once.
Timeline run_fast(FoldedProgram const& program, RunOptions options = {});

// The same on SimGrid's resource sharing: the reference. SimGrid's state belongs to the process, so only one thread
// may call this at a time. Its clock goes on from run to run: times are rounded as numbers of the size of all simulated
// seconds of the process so far.
Timeline run_simgrid(FoldedProgram const& program, RunOptions options = {});

} // namespace foreplan

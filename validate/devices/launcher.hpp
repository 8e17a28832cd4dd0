// Who has started this process, by the environment that launchers set.
#pragma once

#include <optional>
#include <string>

namespace foreplan {

struct Launcher {
  std::string name; // "mpirun", "srun", "torchrun"
  std::string size_variable;
  int size = 1; // processes of the job
};

// Open MPI's and MPICH's mpirun, srun, torchrun; nothing for a process that was started alone.
std::optional<Launcher> launcher();

} // namespace foreplan

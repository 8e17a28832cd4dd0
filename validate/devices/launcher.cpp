#include "validate/devices/launcher.hpp"

#include <cstdlib>

namespace foreplan {
namespace {

struct Variables {
  char const* launcher;
  char const* rank; // tells that the launcher has started this very process
  char const* size;
};

// In this order: an mpirun inside of a Slurm job sees Slurm's variables too.
constexpr Variables known[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"mpirun", "PMI_RANK", "PMI_SIZE"},
    {"srun", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"},
    {"torchrun", "LOCAL_RANK", "WORLD_SIZE"},
};

} // namespace

std::optional<Launcher> launcher() {
  for (Variables const& variables : known) {
    char const* const size = std::getenv(variables.size);
    if (size != nullptr && std::getenv(variables.rank) != nullptr)
      return Launcher{variables.launcher, variables.size, std::atoi(size)};
  }
  return std::nullopt;
}

} // namespace foreplan

#include "cli/child_process.hpp"

#include "io/input_error.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <sys/wait.h>
#include <unistd.h>

namespace foreplan {

std::string sibling_program(std::string const& name) {
  std::filesystem::path const path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
  if (!std::filesystem::exists(path))
    throw InputError(fmt::format("{}: there is no {} beside foreplan; it is built where MPI, oneDNN and OpenMP are "
                                 "(Debian: openmpi-bin libopenmpi-dev libdnnl-dev)",
                                 path.string(), name));
  return path.string();
}

std::vector<std::string> under_mpirun(int ranks, int threads, int cores, std::vector<std::string> const& command) {
  std::vector<std::string> words{"mpirun", "-n", std::to_string(ranks)};
  if (ranks * threads <= cores) {
    words.insert(words.end(), {"--map-by", fmt::format("slot:PE={}", threads), "--bind-to", "core"});
  } else {
    words.insert(words.end(), {"--oversubscribe", "--bind-to", "none"});
  }
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

int run_child(std::vector<std::string> const& command) {
  pid_t const child = fork();
  if (child < 0)
    throw InputError(fmt::format("{}: cannot be started: {}", command[0], std::strerror(errno)));
  if (child == 0) {
    if (geteuid() == 0) { // in containers
      setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
      setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    }
    dup2(STDERR_FILENO, STDOUT_FILENO);
    std::vector<char*> words;
    for (std::string const& word : command)
      words.push_back(const_cast<char*>(word.c_str())); // NOLINT: execvp's signature; it writes nothing
    words.push_back(nullptr);
    execvp(words[0], words.data());
    std::fprintf(stderr, "foreplan: %s: cannot be started: %s\n", words[0], std::strerror(errno));
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TemporaryFile::TemporaryFile() {
  std::string pattern = (std::filesystem::temp_directory_path() / "foreplan-XXXXXX").string();
  int const descriptor = mkstemp(pattern.data());
  if (descriptor < 0)
    throw InputError(fmt::format("{}: cannot be created: {}", pattern, std::strerror(errno)));
  close(descriptor);
  path_ = pattern;
}

TemporaryFile::~TemporaryFile() { unlink(path_.c_str()); }

std::string TemporaryFile::text() const {
  std::ifstream file(path_);
  std::stringstream stream;
  stream << file.rdbuf();
  return stream.str();
}

} // namespace foreplan

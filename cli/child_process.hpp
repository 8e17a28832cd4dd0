// Programs that a command starts: Foreplan's own beside it, under mpirun.
#pragma once

#include <string>
#include <vector>

namespace foreplan {

// Path of a program that is installed beside this one ("foreplan-run"). Throws InputError when there is none.
std::string sibling_program(std::string const& name);

// mpirun with `ranks` processes of `threads` threads each on this machine, in front of `command`; each rank on cores of its
// own where there are enough.
std::vector<std::string> under_mpirun(int ranks, int threads, int cores, std::vector<std::string> const& command);

// Runs it to its end, its output going where this process's error output goes, and returns its exit code (128 + signal).
int run_child(std::vector<std::string> const& command);

// Writes nothing yet: a fresh path for a file in the folder for temporary files, removed by the destructor.
class TemporaryFile {
public:
  TemporaryFile();
  ~TemporaryFile();
  TemporaryFile(TemporaryFile const&) = delete;
  TemporaryFile& operator=(TemporaryFile const&) = delete;
  [[nodiscard]] std::string const& path() const { return path_; }
  [[nodiscard]] std::string text() const; // what is in it

private:
  std::string path_;
};

} // namespace foreplan

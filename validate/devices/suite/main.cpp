// foreplan-suite: measures this machine for `foreplan calibrate --this-machine`. Started by mpirun with one process a rank of
// a node, so that every measurement sees all ranks at work. Rank 0 writes the rows (rows.hpp) to a file.
#include "validate/devices/mpi_session.hpp"
#include "validate/devices/suite/suite.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

using namespace foreplan;

namespace {

struct Arguments {
  int threads = 1;
  std::string out;
  std::string scratch = "/tmp";
  bool quick = false;
};

Arguments read_arguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string_view const key = argv[i];
    if (key == "--threads")
      arguments.threads = std::atoi(argv[i + 1]);
    else if (key == "--out")
      arguments.out = argv[i + 1];
    else if (key == "--scratch")
      arguments.scratch = argv[i + 1];
    else if (key == "--quick")
      arguments.quick = std::string_view(argv[i + 1]) == "yes";
  }
  return arguments;
}

} // namespace

int main(int argc, char** argv) {
  MpiSession const session(argc, argv);
  constexpr double timeout = 120; // seconds without progress
  Job job(timeout);
  Arguments const arguments = read_arguments(argc, argv);
  if (arguments.out.empty() || arguments.threads < 1)
    job.fail("usage: foreplan-suite --threads N --out FILE [--scratch FOLDER] [--quick yes]", 2);
  try {
    std::string const rows = run_suite(job, arguments.threads, arguments.scratch, arguments.quick);
    if (job.rank() == 0) {
      std::FILE* file = std::fopen(arguments.out.c_str(), "w");
      if (file == nullptr || std::fputs(rows.c_str(), file) < 0 || std::fclose(file) != 0)
        job.fail("cannot write '" + arguments.out + "'");
    }
  } catch (std::exception const& error) {
    job.fail(error.what());
  }
}

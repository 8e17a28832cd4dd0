// Reads what nccl-tests and rccl-tests write: their text (with what mpirun puts before each line), the JSON of nccl-tests
// (-J) and the JSON and CSV of rccl-tests (-Z json, -Z csv). Notes: formats.md, section 5.
#pragma once

#include "cluster/collective_parameters.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace foreplan {

struct NcclTestsPoint {
  double bytes = 0;                   // the size column
  std::optional<double> out_of_place; // seconds
  std::optional<double> in_place;
};

// One table. What the file does not say stays empty or 0.
struct NcclTestsRun {
  std::optional<CollectiveOp> op; // as named, or told by the reduction and by bus bandwidth over algorithm bandwidth
  int ranks = 0;                  // as listed, or told by the same ratio
  int nodes = 0;                  // host names
  std::string device;             // "NVIDIA H100 80GB HBM3"
  std::string version;            // of the library
  std::vector<NcclTestsPoint> points;
};

// Throws InputError when nothing of the file can be used. `name` stands for the file in errors.
std::vector<NcclTestsRun> read_nccl_tests(std::string const& path);
std::vector<NcclTestsRun> read_nccl_tests_text(std::string_view text, std::string const& name);

} // namespace foreplan

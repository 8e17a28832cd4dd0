// What foreplan-suite has measured on this machine (validate/devices/suite/suite.hpp), read back.
#pragma once

#include <string>
#include <vector>

namespace foreplan {

struct MeasuredOp {
  std::string op;
  std::string dtype;
  double flops = 0;
  double bytes = 0; // of a communication: sent by a member
  double seconds = 0;
  int members = 1; // of a communication
};

struct MachineRows {
  std::vector<MeasuredOp> kernels;
  std::vector<MeasuredOp> communication;
  double kernel_gap = 0;        // s, between two ops of a stream
  double communication_gap = 0; // s, for each communication that compute waits for
  double triad = 0;             // bytes/s of one rank while all do the same; the three below, too
  double copy = 0;
  double file_read = 0;
  double file_write = 0;
  double base_memory = 0; // bytes of a rank's process before it holds any tensor
  std::string file_access;
  std::string versions; // of the libraries that were measured
};

// Throws std::runtime_error for rows that are not such ones.
MachineRows read_machine_rows(std::string const& text);

} // namespace foreplan

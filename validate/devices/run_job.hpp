// foreplan-run: a plan, run and measured on the processes of an MPI job.
#pragma once

#include "model/model.hpp"
#include "plan/plan.hpp"
#include "validate/devices/element.hpp"
#include "validate/devices/repeat_options.hpp"

#include <functional>
#include <optional>
#include <string>

namespace foreplan {

struct RunRequest {
  Model model;
  Plan plan;
  Storage storage = Storage::as_planned;
  int threads = 0; // of a rank's kernels; 0: its share of the cores
  RepeatOptions repeats;
  double timeout = 20; // seconds without progress that are taken for a hang
  std::string json;    // files to write; empty: none
  std::string trace;
};

// Starts MPI, then reads the request on every rank (nothing: the user has been helped otherwise), runs and measures it, and writes what
// was asked for. Returns the exit code, equal on all ranks: 2 with one line of rank 0's for an input that cannot be used.
// A failure later on ends the process.
int run_job(int argc, char** argv, std::function<std::optional<RunRequest>()> const& read_request);

} // namespace foreplan

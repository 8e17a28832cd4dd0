// Repeats a step until its time is known well enough.
#pragma once

#include "validate/devices/repeat_options.hpp"
#include "validate/devices/runner.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace foreplan {

// Median of a sample and an interval that holds the distribution's median with a confidence of at least 95 % (order
// statistics: the number of values below the median is binomial, whatever the distribution). Of fewer than 6 values, which
// cannot give as much, it reaches from the least to the greatest.
struct Median {
  double value = 0;
  double low = 0;
  double high = 0;
};
Median median_of(std::vector<double> values);

struct Measurement {
  std::vector<double> steps;  // seconds from the common begin to the last end on any rank: the same on all ranks
  std::vector<double> losses; // of each step, 0 where this rank does not hold it
  std::vector<std::vector<OpTimes>> times; // of each repeat, by instance, from the step's begin
  double clock_offset = 0;                 // seconds that this rank's clock is ahead of rank 0's, at the begin
  double clock_drift = 0;                  // by how much that changed to the end
  bool settled = false;                    // the interval is narrow enough
};

// Collective over `world`.
Measurement measure(Runner& runner, MPI_Comm world, Job& job, RepeatOptions const& options);

// What rank 0 knows of a rank after a run.
struct RankRun {
  std::string host;
  std::int64_t peak = 0;           // bytes of the pool that buffers used at most at once
  std::int64_t predicted_peak = 0; // as timeline/memory.hpp reads it off the program
  std::int64_t pool = 0;           // bytes from the first address to the last
  double clock_offset = 0;
  double clock_drift = 0;
  std::vector<OpTimes> times;  // of the median repeat, by instance
  std::vector<double> seconds; // median duration over the repeats, by instance
};

struct Run {
  Median step;
  std::vector<double> steps;
  std::vector<double> losses;
  bool settled = false;
  std::vector<RankRun> ranks; // by rank of the plan
};

// On rank 0 of `world`; empty on the others. Collective.
Run gather_run(Program const& program, Runner const& runner, Measurement const& measurement, MPI_Comm world);

} // namespace foreplan

// A run on devices (foreplan-run --json) beside the prediction of the same plan: two timelines of the same items.
#pragma once

#include "engine/fold.hpp"
#include "program/program.hpp"
#include "timeline/chrome_trace.hpp"
#include "timeline/timeline.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace foreplan {

struct MeasuredRank {
  std::int64_t peak = 0; // bytes of the pool
  std::vector<TimelineEntry> entries;
};

struct MeasuredRun {
  std::string description; // "2026-11-30, Open MPI 4.1.4, 2 ranks of 1 threads on 2 cores"
  double step = 0;         // median, seconds; the entries are of this repeat
  std::vector<double> repeats;
  std::vector<MeasuredRank> ranks;     // by rank of the plan
  [[nodiscard]] double spread() const; // (longest - shortest) / median
};

// Throws InputError for a file that is no such run, or of another plan.
MeasuredRun read_run(std::string const& path, Program const& program);

// A prediction with every rank a class, kernel by kernel (FoldOptions unfold, without segments).
struct Prediction {
  Program const& program;
  Folding const& folding;
  Timeline const& timeline;
  std::vector<std::int64_t> const& peaks; // bytes, by stage
};

// Seconds of device time, the mean over ranks; of a communication from when its last member came.
struct ComparedTime {
  std::string name; // an op kind or a category
  double predicted = 0;
  double measured = 0;
  std::int64_t count = 0; // ops of all ranks
};

// An op kind that takes a rank longer than the others of its stage.
struct Outlier {
  int rank = 0;
  std::string op;
  double ratio = 1;   // to the median of the others
  double seconds = 0; // lost in a step
};

struct RunComparison {
  ComparedTime step;
  double spread = 0;                    // of the measured repeats
  std::vector<ComparedTime> categories; // "gemm", "attention", ..., "tp communication"
  std::vector<ComparedTime> ops;        // by kind, longest first
  std::vector<Outlier> outliers;
  struct Peak {
    int rank = 0;
    std::int64_t predicted = 0;
    std::int64_t measured = 0;
  };
  std::vector<Peak> peaks;
};

RunComparison compare_run(Prediction const& prediction, MeasuredRun const& run);

struct Tolerance {
  double step = 0.15;   // of |predicted / measured - 1|
  double memory = 0.01; // of the peak of every rank
};
bool within(RunComparison const& comparison, Tolerance tolerance);

std::string to_text(RunComparison const& comparison);

// Every rank twice: as predicted and, as rank + world size, as measured.
std::vector<TraceRank> side_by_side(Prediction const& prediction, MeasuredRun const& run);

} // namespace foreplan

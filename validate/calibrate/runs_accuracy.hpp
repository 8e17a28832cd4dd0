// How well steps of published training runs are predicted, as a whole and by chip, framework, source, strategy.
#pragma once

#include "planner/simulate.hpp"
#include "validate/calibrate/runs_rows.hpp"
#include "validate/calibrate/statistics.hpp"

#include <string>
#include <vector>

namespace foreplan {

// Rows that say little about a prediction, and are reported apart.
//   slow_mode     nanotron on two nodes and more with tp and pp, or with tp over nodes: the same plan may or may not lose
//                 a constant time each micro-batch (field: Ultra-Scale sweep)
//   memory_cliff  measured peak above 68 of 80 GiB: the allocator's retries make time of memory
enum class RunClass : std::uint8_t { ordinary, slow_mode, memory_cliff };

struct JudgedRun {
  PublishedRun run;
  double predicted = 0; // seconds
  Bytes peak;           // predicted, of the fullest stage
  Bytes needed;         // and with what the allocator cannot reuse
  RunClass run_class = RunClass::ordinary;
};

// Of trust A or B, and neither in the slow mode nor at the memory cliff.
bool is_scored(JudgedRun const& run);
std::string source_of(PublishedRun const& run); // vtrain in two: one node, several nodes

// Predicts every run, on as many threads as the machine has; in the order of `runs`.
std::vector<JudgedRun> judge_runs(std::vector<PublishedRun> const& runs);

struct RunBand {
  std::string by, value; // "chip", "h100"
  ErrorSummary errors;
  std::vector<JudgedRun const*> worst; // first: the worst
};

// Plans for one model on as many devices, run by one source, ranked by predicted steps with risk (planner/risk.hpp); what
// the slow mode loses is taken from other models' plans.
struct RankedGroup {
  std::string name;
  int gpus = 0;
  int plans = 0;
  double tau = 0;    // Kendall's, of predicted against measured steps
  double regret = 0; // measured step of the plan ranked first, over the fastest measured, - 1
  JudgedRun const* choice = nullptr;
};

struct RunAccuracyReport {
  std::string data; // file
  std::vector<JudgedRun> rows;
  std::map<std::string, int> left_out;
};

// `data`: a table as for read_run_table(); empty: the published one.
RunAccuracyReport runs_accuracy(std::string const& data = {});

// Of the trusted (A, B) ordinary rows and of the others, by everything.
std::vector<RunBand> run_bands(std::vector<JudgedRun> const& rows);
std::vector<RankedGroup> ranked_groups(std::vector<JudgedRun> const& rows);

// The prediction of one row in full. Throws InputError if the table has no such row, or the row cannot be expressed.
std::string run_row_text(std::string const& data, std::string const& id);

std::string run_accuracy_text(RunAccuracyReport const& report);
// The figures that a test holds against later ones: CSV by, value, count, median, p90 (%).
std::string run_figures_csv(RunAccuracyReport const& report);
std::string run_accuracy_json(RunAccuracyReport const& report);

} // namespace foreplan

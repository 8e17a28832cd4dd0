// Published training runs: rows of published/runs.csv and oom.csv as model, cluster and plan.
#pragma once

#include "cluster/cluster.hpp"
#include "model/model.hpp"
#include "plan/plan.hpp"
#include "validate/calibrate/csv.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace foreplan {

struct PublishedRun {
  std::string id;
  std::string config;   // equal for repeats
  std::string family;   // left out together: source, model, chip
  std::string source;   // short name
  std::string trust;    // of the step time: A, B, C
  std::string chip;     // "h100"
  std::string trainer;  // as the table names it
  std::string strategy; // "tp+pp, full recompute"

  Model model;
  Plan plan;
  Cluster cluster;
  std::string framework; // of framework_profiles
  std::string hardware;  // of hardware_profiles

  double step = 0;        // s; 0: not measured
  double peak_memory = 0; // bytes; 0: not measured
  std::string memory_note;
  std::string memory_trust;
  std::string verdict;       // of oom.csv: fits, oom, ...
  double estimated_need = 0; // bytes, by which the verdict was given; 0: not stated
};

struct RunTable {
  std::vector<PublishedRun> runs;
  std::map<std::string, int> left_out; // rows that today's strategies cannot express: why, how many
};

// A table with the columns of published/runs.csv or oom.csv. Throws InputError that names file, line, column, value and
// rule.
RunTable read_run_table(std::string const& path);

std::string published_runs_path();
std::string published_oom_path();

} // namespace foreplan

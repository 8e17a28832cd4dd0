// How well collectives are predicted: every curve by a fit, and a correction, that have not seen it.
#pragma once

#include "validate/calibrate/collectives_fit.hpp"
#include "validate/calibrate/statistics.hpp"

#include <map>
#include <string>
#include <vector>

namespace foreplan {

// What is left out of the published points to judge one curve: the curve (a cell of chip, operation and ranks that has no
// other is then left out whole), or every curve of the same cluster.
enum class LeaveOut : std::uint8_t { curve, cluster };

struct JudgedCollective {
  MeasuredCollective point;
  double modelled = 0;  // seconds, without the correction by measured curves
  double predicted = 0; // with it
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  Protocol protocol = Protocol::simple;
  bool only_curve = false; // of its cell
};

// Trusted rows of `judged`, each predicted from `published` without what belongs to its curve.
std::vector<JudgedCollective> judge_collectives(std::vector<MeasuredCollective> const& published,
                                                std::vector<MeasuredCollective> const& judged,
                                                LeaveOut leave_out = LeaveOut::curve);

// Larger groups than were measured: rows of one source with more than `most_members` ranks, predicted from its rows with
// no more.
std::vector<JudgedCollective> judge_larger_groups(std::vector<MeasuredCollective> const& published,
                                                  std::string_view source, int most_members);

struct CollectiveBand {
  std::string chip, op, size, scale; // "all", or one: "h100", "all_reduce", ">= 1 MiB", "2 nodes"
  std::string cells;                 // "all", ">= 2 curves", "one curve"
  ErrorSummary errors;
  std::vector<JudgedCollective const*> worst; // first: the worst
};

std::vector<CollectiveBand> collective_bands(std::vector<JudgedCollective> const& rows);

struct CollectiveAccuracyReport {
  std::string data; // file
  LeaveOut leave_out = LeaveOut::curve;
  std::vector<JudgedCollective> rows;
  std::vector<JudgedCollective> larger_groups; // judge_larger_groups of the Azure A100 logs, where they are judged
  std::map<std::string, int> left_out;         // rows that could not be judged: why, how many
};

// `data`: a file as for read_collective_points(); empty: the published table. `chip`: only its rows; empty: all.
CollectiveAccuracyReport collective_accuracy(std::string const& data, LeaveOut leave_out = LeaveOut::curve,
                                             std::string const& chip = {});
std::string collective_accuracy_text(CollectiveAccuracyReport const& report);
std::string collective_accuracy_json(CollectiveAccuracyReport const& report);

// The published points: FOREPLAN_PUBLISHED/collectives.csv.
std::vector<MeasuredCollective> published_collectives();

} // namespace foreplan

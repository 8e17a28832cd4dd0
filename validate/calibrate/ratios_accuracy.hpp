// How well results published only as ratios are predicted: published/ratios.csv.
#pragma once

#include "validate/calibrate/zero_pp_accuracy.hpp"

#include <map>
#include <string>
#include <vector>

namespace foreplan {

struct JudgedRatio {
  std::string id;
  std::string what; // "llama-2-13b, tp 8, 512 tokens: throughput over that without tp communication"
  double measured = 0;
  double predicted = 0;
};

struct RatioAccuracyReport {
  std::string data;
  std::vector<JudgedRatio> rows;
  std::vector<JudgedRatio> zero_pp; // throughput over that of ZeRO-3
  ZeroPpPhases phases;
  std::map<std::string, int> left_out; // why, how many
};

// `data`: a table with the columns of published/ratios.csv; empty: that one.
RatioAccuracyReport ratio_accuracy(std::string const& data = {});
std::string ratio_accuracy_text(RatioAccuracyReport const& report);
std::string ratio_accuracy_json(RatioAccuracyReport const& report);

} // namespace foreplan

// The few numbers that are fitted on training runs, by one code: for the profiles, and again in every fold of a
// cross-validation.
//   clock   of a chip under training load (hardware profile, kernels.clock_under_load)
//   issue   host time of an op in a framework (framework profile, issue)
// Of chips and frameworks with enough rows; the others keep what their profiles say.
#pragma once

#include "validate/calibrate/runs_accuracy.hpp"
#include "validate/calibrate/statistics.hpp"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace foreplan {

struct RunParameters {
  std::map<std::string, double> clock; // by hardware profile
  std::map<std::string, double> issue; // s, by framework profile
};

struct FoldRow {
  PublishedRun const* run = nullptr;
  double unfitted = 0;     // predicted seconds: clock 1, issue of the hardware profile
  double shipped = 0;      // by the profiles as they stand
  double fitted = 0;       // by parameters fitted on all rows
  double no_family = 0;    // on those of other families
  double no_framework = 0; // on those of other frameworks; its issue as unfitted, its chip's clock from others
};

struct FoldReport {
  std::vector<JudgedRun> runs;
  RunParameters parameters; // of all rows
  std::vector<FoldRow> rows;
  int families = 0;
};

// Of the trusted ordinary rows. Tens of seconds; `progress` hears of each part that is done.
FoldReport run_folds(std::string const& data = {}, std::function<void(std::string const&)> const& progress = {});

struct FoldBand {
  std::string value; // "dense without vtrain"
  ErrorSummary unfitted, shipped, fitted, no_family, no_framework;
};
std::vector<FoldBand> fold_bands(FoldReport const& report);
std::string fold_figures_csv(FoldReport const& report); // as run_figures_csv()
std::string fold_text(FoldReport const& report);

} // namespace foreplan

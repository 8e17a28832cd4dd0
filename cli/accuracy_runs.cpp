#include "cli/accuracy.hpp"

#include "cli/arguments.hpp"
#include "validate/calibrate/ratios_accuracy.hpp"
#include "validate/calibrate/runs_accuracy.hpp"
#include "validate/calibrate/runs_fit.hpp"
#include "validate/calibrate/runs_memory.hpp"

#include <iostream>

namespace foreplan {

int run_accuracy_runs(std::vector<std::string> const& arguments) {
  cxxopts::Options options("foreplan accuracy runs", "How well steps of published training runs are predicted.");
  options.add_options()("data", "table of runs (columns: validate/calibrate/published/runs.csv)",
                        cxxopts::value<std::string>()->default_value(""))(
      "figures", "print the figures that a test holds against later ones")(
      "folds", "fit again with each family and each framework left out (a minute or two)")(
      "row", "the prediction of this row in full", cxxopts::value<std::string>())("json", "print JSON");
  auto const parsed = parse(options, arguments);
  if (!parsed)
    return 0;
  if (parsed->count("row") > 0) {
    std::cout << run_row_text((*parsed)["data"].as<std::string>(), (*parsed)["row"].as<std::string>());
    return 0;
  }
  if (parsed->count("folds") > 0) {
    FoldReport const folds = run_folds((*parsed)["data"].as<std::string>(),
                                       [](std::string const& what) { std::cerr << what << '\n'; });
    std::cout << (parsed->count("figures") > 0 ? fold_figures_csv(folds) : fold_text(folds));
    return 0;
  }
  RunAccuracyReport const report = runs_accuracy((*parsed)["data"].as<std::string>());
  if (parsed->count("figures") > 0) {
    std::cout << run_figures_csv(report);
    return 0;
  }
  std::cout << (parsed->count("json") > 0 ? run_accuracy_json(report) : run_accuracy_text(report));
  return 0;
}

int run_accuracy_memory(std::vector<std::string> const& arguments) {
  cxxopts::Options options("foreplan accuracy memory",
                           "How well peak memory of published training runs is predicted, and whether they fit.");
  options.add_options()("data", "table of runs (columns: validate/calibrate/published/oom.csv)",
                        cxxopts::value<std::string>()->default_value(""))(
      "figures", "print the figures that a test holds against later ones")("json", "print JSON");
  auto const parsed = parse(options, arguments);
  if (!parsed)
    return 0;
  MemoryAccuracyReport const report = memory_accuracy((*parsed)["data"].as<std::string>());
  if (parsed->count("figures") > 0) {
    std::cout << memory_figures_csv(report);
    return 0;
  }
  std::cout << (parsed->count("json") > 0 ? memory_accuracy_json(report) : memory_accuracy_text(report));
  return 0;
}

int run_accuracy_ratios(std::vector<std::string> const& arguments) {
  cxxopts::Options options("foreplan accuracy ratios",
                           "How well published ratios between strategies (Domino, ZeRO++, offload) are predicted.");
  options.add_options()("data", "table of ratios (columns: validate/calibrate/published/ratios.csv)",
                        cxxopts::value<std::string>()->default_value(""))("json", "print JSON");
  auto const parsed = parse(options, arguments);
  if (!parsed)
    return 0;
  RatioAccuracyReport const report = ratio_accuracy((*parsed)["data"].as<std::string>());
  std::cout << (parsed->count("json") > 0 ? ratio_accuracy_json(report) : ratio_accuracy_text(report));
  return 0;
}

} // namespace foreplan

#include "cli/accuracy.hpp"

#include "cli/arguments.hpp"
#include "validate/calibrate/runs_accuracy.hpp"

#include <iostream>

namespace foreplan {

int run_accuracy_runs(std::vector<std::string> const& arguments) {
  cxxopts::Options options("foreplan accuracy runs", "How well steps of published training runs are predicted.");
  options.add_options()("data", "table of runs (columns: validate/calibrate/published/runs.csv)",
                        cxxopts::value<std::string>()->default_value(""))("row", "the prediction of this row in full", cxxopts::value<std::string>())("json", "print JSON");
  auto const parsed = parse(options, arguments);
  if (!parsed)
    return 0;
  if (parsed->count("row") > 0) {
    std::cout << run_row_text((*parsed)["data"].as<std::string>(), (*parsed)["row"].as<std::string>());
    return 0;
  }
  RunAccuracyReport const report = runs_accuracy((*parsed)["data"].as<std::string>());
  std::cout << (parsed->count("json") > 0 ? run_accuracy_json(report) : run_accuracy_text(report));
  return 0;
}

} // namespace foreplan

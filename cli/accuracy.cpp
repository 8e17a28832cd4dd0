#include "cli/accuracy.hpp"

#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "io/input_error.hpp"
#include "validate/calibrate/kernels_accuracy.hpp"

#include <fmt/format.h>

#include <iostream>

namespace foreplan {

int run_accuracy_kernels(std::vector<std::string> const& arguments) {
  cxxopts::Options options("foreplan accuracy kernels",
                           "How well kernels are predicted: each family of shapes by a fit that has not seen it.");
  auto text = [] { return cxxopts::value<std::string>()->default_value(""); };
  options.add_options()("data", "table of measured kernels (columns: validate/calibrate/published/kernels.csv)",
                        text())("chip", "only this chip, as the table names it", text())("json", "print JSON");
  auto const parsed = parse(options, arguments);
  if (!parsed)
    return 0;
  KernelAccuracyReport const report = kernel_accuracy((*parsed)["data"].as<std::string>(),
                                                      (*parsed)["chip"].as<std::string>());
  std::cout << (parsed->count("json") > 0 ? kernel_accuracy_json(report) : kernel_accuracy_text(report));
  return 0;
}

int run_accuracy(std::vector<std::string> const& arguments) {
  std::string const what = arguments.empty() ? "" : arguments[0];
  std::vector<std::string> const rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (what == "kernels")
    return run_accuracy_kernels(rest);
  if (what == "collectives")
    return run_accuracy_collectives(rest);
  if (what == "runs")
    return run_accuracy_runs(rest);
  if (what == "memory")
    return run_accuracy_memory(rest);
  if (what == "ratios")
    return run_accuracy_ratios(rest);
  if (what == "--help") {
    std::cout << "foreplan accuracy runs|memory|ratios|kernels|collectives [OPTIONS]    (foreplan accuracy kernels "
                 "--help lists them)\n";
    return 0;
  }
  throw InputError(fmt::format("accuracy{}{}: must be followed by runs, memory, ratios, kernels or collectives",
                               what.empty() ? "" : " ", what));
}

} // namespace foreplan

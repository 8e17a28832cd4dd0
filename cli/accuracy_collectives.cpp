#include "cli/accuracy.hpp"

#include "cli/arguments.hpp"
#include "validate/calibrate/collectives_accuracy.hpp"

#include <iostream>

namespace foreplan {

int run_accuracy_collectives(std::vector<std::string> const& arguments) {
  cxxopts::Options options("foreplan accuracy collectives",
                           "How well collectives are predicted: each curve by a fit that has not seen it.");
  auto text = [] { return cxxopts::value<std::string>()->default_value(""); };
  options.add_options()(
      "data",
      "table of measured collectives (columns: validate/calibrate/published/collectives.csv), or what nccl-tests or "
      "rccl-tests wrote",
      text())("chip", "only this chip, as the table names it; of a log that names no device: its chip", text())(
      "leave-out-clusters",
      "predict each curve without all curves of its cluster, not only without itself")("json", "print JSON");
  auto const parsed = parse(options, arguments);
  if (!parsed)
    return 0;
  LeaveOut const leave_out = parsed->count("leave-out-clusters") > 0 ? LeaveOut::cluster : LeaveOut::curve;
  CollectiveAccuracyReport const report = collective_accuracy((*parsed)["data"].as<std::string>(), leave_out,
                                                              (*parsed)["chip"].as<std::string>());
  std::cout << (parsed->count("json") > 0 ? collective_accuracy_json(report) : collective_accuracy_text(report));
  return 0;
}

} // namespace foreplan

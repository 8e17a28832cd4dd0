#include "report/compare.hpp"
#include "cli/command.hpp"
#include "cli/plan_options.hpp"
#include "cluster/read_profile.hpp"
#include "model/read_model.hpp"
#include "plan/read_plan.hpp"
#include "planner/simulate.hpp"
#include "report/read_report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <iostream>

namespace foreplan {

namespace {

// A report as it stands, or a plan simulated.
Report report_from(std::string const& path, cxxopts::ParseResult const& parsed) {
  JsonReader const reader = JsonReader::read_file(path, "");
  std::string const format = reader["format"].text();
  if (format == "foreplan report 1")
    return read_report(reader);
  if (format != "foreplan plan 1")
    reader["format"].fail(R"(must be "foreplan report 1" or "foreplan plan 1")");
  if (parsed.count("model") == 0 || parsed.count("hardware") == 0)
    throw InputError(fmt::format("{}: is a plan; to compare plans give --model and --hardware, or give reports "
                                 "(foreplan simulate --json)",
                                 path));
  Model const model = read_model(parsed["model"].as<std::string>());
  Plan const plan = read_plan(reader);
  refuse_illegal(model, plan);
  return simulate(model, plan, cluster_of(parsed, plan), {.segments = false});
}

} // namespace

int run_compare(std::vector<std::string> const& arguments) {
  cxxopts::Options options("foreplan compare",
                           "Why is B slower than A? Each is a plan, or a report (foreplan simulate --json).");
  auto text = [] { return cxxopts::value<std::string>(); };
  // clang-format off
  options.custom_help("A.json B.json [OPTION...]");
  options.add_options()
      ("model", "model file, to compare plans", text())
      ("hardware", "hardware profile, to compare plans", text())
      ("nodes", "nodes of the cluster (default: as many as the plan needs)", text())
      ("json", "print JSON");
  // clang-format on
  auto const parsed = parse(options, arguments, 2);
  if (!parsed)
    return 0;
  std::vector<std::string> const& files = parsed->unmatched();
  if (files.size() != 2)
    throw InputError(fmt::format("compare: takes two files, plans or reports; {} given", files.size()));
  Report const a = report_from(files[0], *parsed), b = report_from(files[1], *parsed);
  Comparison const comparison = compare(a, b);
  if (parsed->count("json") > 0) {
    nlohmann::ordered_json json{{"format", "foreplan comparison 1"}, {"a", files[0]}, {"b", files[1]}};
    json.update(to_json(comparison));
    std::cout << json.dump(2) << '\n';
  } else {
    std::cout << to_text(comparison, a, b, "A", "B");
  }
  return 0;
}

} // namespace foreplan

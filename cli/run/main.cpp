// foreplan-run: runs a plan on the processes of an MPI job and measures it.
#include "cli/arguments.hpp"
#include "io/input_error.hpp"
#include "model/read_model.hpp"
#include "plan/plan_checker.hpp"
#include "plan/read_plan.hpp"
#include "validate/devices/run_job.hpp"

#include <fmt/format.h>

namespace foreplan {
namespace {

Storage storage_of(std::string const& text) {
  if (text == "plan")
    return Storage::as_planned;
  if (text == "fp32")
    return Storage::fp32;
  if (text == "fp64")
    return Storage::fp64;
  throw InputError(fmt::format("--dtype {}: must be one of plan, fp32, fp64", text));
}

void require_legal(RunRequest const& request) {
  if (std::vector<PlanFinding> const findings = check(request.model, request.plan); !findings.empty())
    throw InputError(fmt::format("plan for {}: {}", request.model.name, findings[0].text));
}

std::optional<RunRequest> read_request(std::vector<std::string> const& arguments) {
  cxxopts::Options options("foreplan-run", "Runs a plan on the processes of an MPI job and measures it.");
  auto text = [] { return cxxopts::value<std::string>(); };
  options.custom_help("PLAN.json --model MODEL.json [OPTION...]");
  // clang-format off
  options.add_options()
      ("model", "model file (models/*.json)", text())
      ("dtype", "storage: plan (the plan's types), fp32 or fp64 (the interpreter's kernels: slow)", text()->default_value("plan"))
      ("threads", "threads of a rank's kernels; 0: its share of the cores", text()->default_value("0"))
      ("warm-up", "steps before the first that is measured", text()->default_value("2"))
      ("repeats", "measured steps at the most; fewer when the median's 95 % interval is within 2 %", text()->default_value("30"))
      ("steps", "measure as many steps as this, no fewer", text()->default_value("0"))
      ("timeout", "seconds without progress that are taken for a hang", text()->default_value("20"))
      ("json", "also write the measurement: a file", text()->default_value(""))
      ("trace", "also write a trace of all ranks for Perfetto: a file", text()->default_value(""));
  // clang-format on
  auto const parsed = parse(options, arguments, 1);
  if (!parsed)
    return std::nullopt;
  if (parsed->unmatched().empty())
    throw InputError("PLAN.json: missing; the plan's file must be given");
  RunRequest request;
  request.model = read_model(required_text(*parsed, "model"));
  request.plan = read_plan(parsed->unmatched()[0]);
  require_legal(request);
  request.storage = storage_of((*parsed)["dtype"].as<std::string>());
  request.threads = static_cast<int>(whole_number(*parsed, "threads", 0, 4096));
  request.repeats.warm_up = static_cast<int>(whole_number(*parsed, "warm-up", 0, 1'000'000));
  request.repeats.most = static_cast<int>(whole_number(*parsed, "repeats", 1, 1'000'000));
  if (int const steps = static_cast<int>(whole_number(*parsed, "steps", 0, 1'000'000)); steps > 0)
    request.repeats.least = request.repeats.most = steps;
  request.timeout = static_cast<double>(whole_number(*parsed, "timeout", 1, 1'000'000));
  request.json = (*parsed)["json"].as<std::string>();
  request.trace = (*parsed)["trace"].as<std::string>();
  return request;
}

} // namespace
} // namespace foreplan

int main(int argc, char** argv) {
  return foreplan::run_job(argc, argv, [&] { return foreplan::read_request({argv + 1, argv + argc}); });
}

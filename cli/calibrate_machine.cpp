// foreplan calibrate --this-machine: measures, fits, writes the profile.
#include "cli/accuracy.hpp"
#include "cli/child_process.hpp"
#include "cluster/read_profile.hpp"
#include "io/input_error.hpp"
#include "validate/calibrate/machine_profile.hpp"
#include "validate/calibrate/topology.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <fstream>
#include <iostream>

namespace foreplan {
namespace {

std::string cost_table(OpCosts const& costs) {
  auto const rate = [](double inverse) {
    return inverse > 0 ? fmt::format("{:.1f}", 1e-9 / inverse) : std::string("-");
  };
  std::string text = fmt::format("{:<28} {:<6} {:>10} {:>10} {:>8} {:>10} {:>10} {:>6} {:>8}\n", "op", "dtype",
                                 "fixed, us", "Gflop/s", "GB/s", "cached, MB", "cold GB/s", "rows", "spread");
  for (OpCost const& cost : costs.costs) {
    double const cold = cost.per_byte + cost.per_cold_byte;
    text += fmt::format("{:<28} {:<6} {:>10.1f} {:>10} {:>8} {:>10} {:>10} {:>6} {:>6.1f} %\n", cost.op, cost.dtype,
                        cost.fixed * 1e6, rate(cost.per_flop), rate(cost.per_byte),
                        cost.per_cold_byte > 0 ? fmt::format("{:.0f}", cost.cached / 1e6) : "-",
                        cost.per_cold_byte > 0 ? rate(cold) : "-", cost.rows, 100 * cost.band);
  }
  return text;
}

} // namespace

int calibrate_machine(MachineOptions const& options) {
  Topology const topology = detect_topology();
  int const ranks = options.ranks > 0 ? options.ranks : std::max(1, topology.cores / std::max(1, options.threads));
  int const threads = options.threads > 0 ? options.threads : std::max(1, topology.cores / ranks);
  TemporaryFile const file;
  std::vector<std::string> const suite{
      sibling_program("foreplan-suite"), "--threads", std::to_string(threads), "--out", file.path(), "--quick",
      options.quick ? "yes" : "no"};
  int const code = run_child(under_mpirun(ranks, threads, topology.cores, suite));
  if (code != 0)
    throw InputError(fmt::format("foreplan-suite has failed with exit code {}", code));
  MachineRows const rows = read_machine_rows(file.text());
  OpCosts const costs = fit_machine(rows);
  MachineFacts const facts{.processor = topology.processor,
                           .cores = topology.cores,
                           .sockets = topology.sockets,
                           .memory = topology.memory,
                           .last_level_cache = topology.last_level_cache,
                           .ranks = ranks,
                           .threads = threads,
                           .measured_by = fmt::format("foreplan calibrate --this-machine, {:%Y-%m-%d}, {}",
                                                      fmt::gmtime(std::time(nullptr)), rows.versions)};
  std::string const text = machine_profile(facts, rows, costs);
  (void)read_profile(JsonReader::read_text(text, options.out, "foreplan hardware 1"));
  std::ofstream out(options.out);
  out << text;
  out.close();
  if (!out)
    throw InputError(fmt::format("--out {}: cannot be written", options.out));
  std::cout << fmt::format("{}: {} ranks of {} threads on {} cores ({})\n\n{}", options.out, ranks, threads,
                           topology.cores, topology.processor, cost_table(costs));
  return 0;
}

} // namespace foreplan

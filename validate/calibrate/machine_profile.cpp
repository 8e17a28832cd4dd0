#include "validate/calibrate/machine_profile.hpp"

#include "validate/calibrate/profile_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace foreplan {
namespace {

// "key": {"value": ..., "kind": ..., "source": ...}
std::string entry(std::string_view key, std::string const& value, std::string_view kind, std::string const& source) {
  return fmt::format("    \"{}\": {{\"value\": {}, \"kind\": \"{}\", \"source\": {}}}", key, value, kind,
                     json_quoted(source));
}

std::string rate(double bytes_per_second) { return fmt::format("\"{:.5g} GB/s\"", bytes_per_second / 1e9); }
std::string flops(double flops_per_second) { return fmt::format("\"{:.5g} GFLOP/s\"", flops_per_second / 1e9); }
std::string seconds(double value) { return fmt::format("\"{:.4g} us\"", value * 1e6); }
std::string bytes(double value) { return fmt::format("\"{:.0f} MB\"", value / 1e6); }

// Fastest product among the rows: what utilisation is held against.
double best_rate(MachineRows const& rows, std::string_view dtype) {
  double best = 0;
  for (MeasuredOp const& row : rows.kernels)
    if (row.op.starts_with("linear") && row.dtype == dtype)
      best = std::max(best, row.flops / row.seconds);
  return best > 0 ? best : 1e9;
}

double best_wire_rate(MachineRows const& rows) {
  double best = rows.copy; // of one rank alone there is no communication
  for (MeasuredOp const& row : rows.communication)
    best = std::max(best, row.bytes / row.seconds);
  return best;
}

template <class... Lines>
std::string object(std::string_view key, std::string const& first, Lines const&... lines) {
  return fmt::format("  \"{}\": {{\n{}", key, first) + (std::string() + ... + (",\n" + lines)) + "\n  },\n";
}

} // namespace

std::string machine_profile(MachineFacts const& facts, MachineRows const& rows, OpCosts const& costs) {
  std::string const& by = facts.measured_by;
  std::string const share = fmt::format("one of {} ranks, {} threads each, on {} cores", facts.ranks, facts.threads,
                                        facts.cores);
  std::string const one_node = "one machine: no network was measured, the figure of the node stands in";
  double const wire = best_wire_rate(rows);
  auto const measured = [&](std::string_view key, std::string const& value) {
    return entry(key, value, "measured", by);
  };
  std::string text = "{\n  \"format\": \"foreplan hardware 1\",\n";
  text += fmt::format("  \"name\": {},\n", json_quoted(fmt::format("{}, {}", facts.processor, share)));
  text += object(
      "chip", fmt::format("    \"name\": {}", json_quoted(fmt::format("{}, {} cores", facts.processor, facts.threads))),
      measured("bf16_peak", flops(best_rate(rows, "bf16"))), measured("fp32_peak", flops(best_rate(rows, "fp32"))),
      entry("memory", bytes(facts.memory / facts.ranks), "datasheet", "the machine's memory, " + share),
      measured("memory_bandwidth", rate(rows.triad)),
      entry("multiprocessors", std::to_string(facts.threads), "datasheet", share),
      entry("last_level_cache", bytes(std::max(1e6, facts.last_level_cache)), "datasheet",
            "hwloc; shared by all ranks"));
  std::string const host = fmt::format(
      "    \"host\": {{\n      \"processor\": {},\n  {},\n  {},\n  {},\n  {},\n  {},\n  {},\n  {},\n  {},\n  {}\n    "
      "}}",
      json_quoted(facts.processor), entry("sockets", std::to_string(facts.sockets), "datasheet", "hwloc"),
      entry("cores", std::to_string(facts.cores), "datasheet", "hwloc"),
      entry("memory", bytes(facts.memory), "datasheet", "the operating system"),
      measured("memory_bandwidth", rate(rows.triad * facts.ranks)), measured("link", rate(rows.copy)),
      entry("drives", "1", "datasheet", "the scratch folder of the measurement: " + rows.file_access),
      entry("drive_capacity", "\"1 GB\"", "datasheet", "not looked up"),
      measured("drive_read", rate(rows.file_read * facts.ranks)),
      measured("drive_write", rate(rows.file_write * facts.ranks)));
  text += object("node", entry("devices", std::to_string(facts.ranks), "datasheet", share),
                 measured("scale_up", rate(wire)), measured("scale_up_latency", seconds(0)),
                 entry("nics", "1", "datasheet", one_node), entry("nic", rate(wire), "datasheet", one_node),
                 entry("network_latency", seconds(0), "datasheet", one_node), host);
  auto const whole = [&](std::string_view key) {
    return entry(key, "1", "datasheet", "the rates above are measured ones");
  };
  text += object("efficiency", whole("gemm"), whole("attention"), whole("memory_bound"), whole("scale_up"),
                 whole("network"));
  text += object("overheads", measured("kernel_fixed", seconds(rows.kernel_gap)),
                 entry("issue", seconds(0), "measured", "the host thread only counts: its time is in kernel_fixed"),
                 measured("collective_base", seconds(rows.communication_gap)),
                 entry("collective_multiprocessors", "1", "datasheet",
                       "a communication is driven by a thread of the rank's own cores"),
                 measured("reserved", bytes(std::max(1e6, rows.base_memory))));
  return text + "  " + op_costs_member(costs, json_quoted(by)) + "\n}\n";
}

} // namespace foreplan

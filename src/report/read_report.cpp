#include "report/read_report.hpp"

#include "plan/read_plan.hpp"

namespace foreplan {

namespace {

constexpr double most = 1e300;

double number(JsonReader const& reader, std::string_view key) { return reader[key].number(0, most); }

Seconds seconds(JsonReader const& reader, std::string_view key) { return Seconds(number(reader, key)); }

Breakdown read_breakdown(JsonReader const& reader) {
  Breakdown b;
  b.compute = {seconds(reader, "compute_gemm_s"), seconds(reader, "compute_attention_s"),
               seconds(reader, "compute_memory_bound_s"), Seconds(0)};
  b.exposed_tp = seconds(reader, "exposed_tp_s");
  if (reader.find("exposed_cp_s")) {
    b.exposed_cp = seconds(reader, "exposed_cp_s");
    b.hidden_cp = seconds(reader, "hidden_cp_s");
  }
  if (reader.find("exposed_offload_s")) {
    b.exposed_offload = seconds(reader, "exposed_offload_s");
    b.hidden_offload = seconds(reader, "hidden_offload_s");
  }
  b.exposed_dp = seconds(reader, "exposed_dp_s");
  b.exposed_pp = seconds(reader, "exposed_pp_s");
  b.host = seconds(reader, "host_s");
  b.bubble = seconds(reader, "bubble_s");
  b.hidden_tp = seconds(reader, "hidden_tp_s");
  b.hidden_dp = seconds(reader, "hidden_dp_s");
  b.hidden_pp = seconds(reader, "hidden_pp_s");
  b.communicating = seconds(reader, "communicating_s");
  b.overlapped = seconds(reader, "overlapped_s");
  return b;
}

} // namespace

Report read_report(JsonReader const& reader) {
  Report report;
  report.model = reader["model"].text();
  report.hardware = reader["hardware"].text();
  report.devices = static_cast<int>(reader["devices"].integer(1, 1 << 24));
  report.plan = read_plan(reader["plan"]);
  report.engine = reader["engine"].text();
  report.items = reader["items"].integer(0, std::int64_t{1} << 60);
  report.step = seconds(reader, "step_s");
  if (report.step == Seconds(0))
    reader["step_s"].fail("must be more than 0");
  if (auto const band = reader.find("step_band")) // reports of before had none
    report.band = band->number(0, most);
  if (auto const known = reader.find("step_band_known"))
    report.band_known = known->number(0, 1);
  report.tokens_per_second = number(reader, "tokens_per_s");
  report.mfu = number(reader, "mfu");
  report.hfu = number(reader, "hfu");
  report.flops_per_token = Flops(number(reader, "flops_per_token"));
  report.executed_flops = Flops(number(reader, "executed_flops"));
  report.breakdown = read_breakdown(reader["breakdown"]);
  for (JsonReader const& stage : reader["stages"].elements()) {
    StageReport read;
    read.stage = Stage(stage["stage"].integer(0, 1 << 24));
    read.layers = stage["layers"].text();
    read.breakdown = read_breakdown(stage["breakdown"]);
    report.stages.push_back(std::move(read));
  }
  report.usable_memory = Bytes(number(reader, "usable_memory_B"));
  report.reserved_memory = Bytes(number(reader, "reserved_memory_B"));
  report.peak_memory = Bytes(number(reader, "peak_memory_B"));
  if (reader.find("host_memory_B"))
    report.host_memory = Bytes(number(reader, "host_memory_B"));
  if (reader.find("disk_memory_B"))
    report.disk_memory = Bytes(number(reader, "disk_memory_B"));
  report.headroom = number(reader, "headroom");
  report.fit = reader["fit"].choice<Fit>(
      {{"fits", Fit::fits}, {"borderline", Fit::borderline}, {"too large", Fit::too_large}});
  if (reader.find("fit_probability")) { // reports of before have none
    report.needed_memory = Bytes(number(reader, "needed_memory_B"));
    report.fit_probability = number(reader, "fit_probability");
  }
  return report;
}

} // namespace foreplan

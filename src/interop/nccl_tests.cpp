#include "interop/nccl_tests.hpp"

#include "io/input_error.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace foreplan {

namespace {

constexpr double microsecond = 1e-6;

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

// "all_reduce_perf", "AllReduce", "alltoall_perf"
std::optional<CollectiveOp> op_named(std::string_view text) {
  std::string name = lower(text);
  std::erase(name, '_');
  constexpr std::pair<std::string_view, CollectiveOp> names[] = {
      {"allreduce", CollectiveOp::all_reduce},         {"allgather", CollectiveOp::all_gather},
      {"reducescatter", CollectiveOp::reduce_scatter}, {"alltoall", CollectiveOp::all_to_all},
      {"broadcast", CollectiveOp::broadcast},          {"sendrecv", CollectiveOp::send_receive}};
  for (auto const& [known, op] : names)
    if (name.find(known) != std::string::npos && name.find("alltoallv") == std::string::npos)
      return op;
  return std::nullopt;
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

// A count of ranks or nodes; 0: not one.
int count(std::optional<double> value) {
  constexpr double most = 1e7;
  return value && *value >= 1 && *value <= most ? static_cast<int>(*value) : 0;
}

std::vector<std::string> words_of(std::string const& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

// mpirun --tag-output puts "[1,0]<stdout>:" before a line, and into it where two processes wrote at once.
std::string without_tags(std::string line) {
  for (std::size_t at = 0; (at = line.find('[', at)) != std::string::npos;) {
    std::size_t const close = line.find("]<std", at);
    std::size_t const end = close == std::string::npos ? close : line.find(">:", close);
    bool const tag = end != std::string::npos && close - at < 12 && end - close < 10;
    if (tag)
      line.erase(at, end + 2 - at);
    else
      ++at;
  }
  return line;
}

// What a run's rows say about the operation, when nobody names it.
struct Signs {
  double bus_over_algorithm = 0; // at the highest bandwidth, where it has most digits
  double best = 0;
  std::string reduction;
  int root = -1;

  void note(double algorithm, double bus, std::string const& redop, int row_root) {
    reduction = redop;
    root = row_root;
    if (algorithm > best) {
      best = algorithm;
      bus_over_algorithm = bus / algorithm;
    }
  }
};

// Factors: 2 (n - 1) / n for all-reduce, (n - 1) / n for gather, scatter and all-to-all, 1 for the rest.
void conclude(NcclTestsRun& run, Signs const& signs) {
  double const factor = signs.bus_over_algorithm;
  double const n = run.ranks;
  bool const reduces = !signs.reduction.empty() && signs.reduction != "none";
  if (run.ranks == 1) // nothing travels
    return;
  if (!run.op) {
    if (signs.root >= 0)
      run.op = reduces ? std::nullopt : std::optional(CollectiveOp::broadcast);
    else if (reduces)
      run.op = (n > 0 ? std::abs(factor - 2 * (n - 1) / n) < std::abs(factor - (n - 1) / n) : factor >= 0.995)
                   ? CollectiveOp::all_reduce
                   : CollectiveOp::reduce_scatter;
    else
      run.op = factor > 0.995 && n < 100 ? CollectiveOp::send_receive : CollectiveOp::all_gather;
  }
  if (run.ranks == 0 && run.op && factor > 0) {
    double const ranks = *run.op == CollectiveOp::all_reduce ? 2 / (2 - factor)
                         : *run.op == CollectiveOp::broadcast || *run.op == CollectiveOp::send_receive
                             ? 0
                             : 1 / (1 - factor);
    run.ranks = ranks > 1 && ranks < 1e6 ? static_cast<int>(std::lround(ranks)) : 0;
  }
}

class TextReader {
public:
  std::vector<NcclTestsRun> read(std::string_view text) {
    std::istringstream stream{std::string(text)};
    for (std::string line; std::getline(stream, line);)
      read_line(without_tags(std::move(line)));
    finish();
    return std::move(runs_);
  }

private:
  void read_line(std::string const& line) {
    std::vector<std::string> const words = words_of(line);
    if (words.empty())
      return;
    if (line.find("nThread") != std::string::npos)
      finish();
    else if (auto const named = line.find("test starting"); named != std::string::npos)
      run_.op = op_named(line);
    else if (line.find("NCCL version") != std::string::npos || line.find("RCCL version") != std::string::npos)
      run_.version = words.back();
    else if (line.find("Rank") != std::string::npos && line.find(" on ") != std::string::npos)
      read_device(line);
    else if (std::find(words.begin(), words.end(), "redop") != words.end())
      has_root_ = std::find(words.begin(), words.end(), "root") != words.end();
    else if (std::isdigit(static_cast<unsigned char>(words[0][0])) != 0)
      read_row(words);
  }

  // "#  Rank  0 Group  0 Pid   1234 on host device  0 [0000:19:00] NVIDIA H100 80GB HBM3"
  void read_device(std::string const& line) {
    std::size_t const on = line.find(" on "), device = line.find(" device", on), bracket = line.find("] ", on);
    if (device == std::string::npos)
      return;
    ++devices_;
    hosts_.insert(line.substr(on + 4, device - on - 4));
    if (bracket != std::string::npos && run_.device.empty())
      run_.device = line.substr(bracket + 2, line.find_last_not_of(" \r") - bracket - 1);
  }

  // size count type redop [root], then time algbw busbw wrong, twice; later columns are of no use here.
  void read_row(std::vector<std::string> const& words) {
    bool const root = has_root_.value_or(words.size() != 12);
    std::size_t const first = root ? 5 : 4;
    if (words.size() < first + 3)
      return;
    std::optional<double> const size = number(words[0]), time = number(words[first]),
                                algorithm = number(words[first + 1]), bus = number(words[first + 2]);
    if (!size || *size <= 0 || !number(words[1]) || number(words[2]))
      return;
    NcclTestsPoint point{*size, std::nullopt, std::nullopt};
    if (time && *time > 0)
      point.out_of_place = *time * microsecond;
    if (words.size() > first + 4)
      if (std::optional<double> const in_place = number(words[first + 4]); in_place && *in_place > 0)
        point.in_place = *in_place * microsecond;
    run_.points.push_back(point);
    if (algorithm && bus)
      signs_.note(*algorithm, *bus, words[3], root && number(words[4]).value_or(-1) >= 0 ? 0 : -1);
  }

  void finish() {
    if (!run_.points.empty()) {
      run_.ranks = devices_;
      run_.nodes = static_cast<int>(hosts_.size());
      conclude(run_, signs_);
      runs_.push_back(std::move(run_));
    }
    run_ = {};
    signs_ = {};
    hosts_.clear();
    devices_ = 0;
    has_root_.reset();
  }

  std::vector<NcclTestsRun> runs_;
  NcclTestsRun run_;
  Signs signs_;
  std::set<std::string> hosts_;
  int devices_ = 0;
  std::optional<bool> has_root_; // as the header says
};

using Json = nlohmann::json;

// A number, written as one or as text.
std::optional<double> number(Json const& object, char const* key) {
  auto const found = object.find(key);
  if (found == object.end())
    return std::nullopt;
  if (found->is_number())
    return found->get<double>();
  return found->is_string() ? number(found->get<std::string>()) : std::nullopt;
}

std::string text(Json const& object, char const* key) {
  auto const found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<double> seconds(Json const& row, char const* place) {
  auto const found = row.find(place);
  if (found == row.end() || !found->is_object())
    return std::nullopt;
  std::optional<double> const time = number(*found, "time");
  return time && *time > 0 ? std::optional(*time * microsecond) : std::nullopt;
}

// {"args": [..], "nccl_version": .., "devices": [..], "results": [{"size": .., "out_of_place": {"time": ..}, ..}]}
NcclTestsRun nccl_run(Json const& document) {
  NcclTestsRun run;
  if (auto const args = document.find("args"); args != document.end() && args->is_array() && !args->empty())
    run.op = op_named(args->front().is_string() ? args->front().get<std::string>() : "");
  if (std::optional<double> const version = number(document, "nccl_version"))
    run.version = fmt::format("{}", *version);
  if (auto const devices = document.find("devices"); devices != document.end() && devices->is_array()) {
    std::set<std::string> hosts;
    for (Json const& device : *devices) {
      hosts.insert(text(device, "hostname"));
      run.device = text(device, "device_info");
    }
    run.ranks = static_cast<int>(devices->size());
    run.nodes = static_cast<int>(hosts.size());
  }
  Signs signs;
  for (Json const& row : document.at("results")) {
    if (!row.is_object())
      continue;
    std::optional<double> const size = number(row, "size");
    if (!size || *size <= 0)
      continue;
    run.points.push_back({*size, seconds(row, "out_of_place"), seconds(row, "in_place")});
    if (auto const body = row.find("out_of_place"); body != row.end() && body->is_object())
      signs.note(number(*body, "alg_bw").value_or(0), number(*body, "bus_bw").value_or(0), text(row, "redop"),
                 number(row, "root").value_or(-1) >= 0 ? 0 : -1);
  }
  conclude(run, signs);
  return run;
}

// One row a size and place: rccl-tests' objects and CSV lines alike.
struct RcclRows {
  std::map<std::tuple<std::string, int, int>, std::map<double, NcclTestsPoint>> runs; // by name, ranks, nodes

  void add(std::string const& name, int ranks, int nodes, double size, bool in_place, double time) {
    if (size <= 0 || time <= 0)
      return;
    NcclTestsPoint& point = runs[{name, ranks, nodes}][size];
    point.bytes = size;
    (in_place ? point.in_place : point.out_of_place) = time * microsecond;
  }

  [[nodiscard]] std::vector<NcclTestsRun> result() const {
    std::vector<NcclTestsRun> all;
    for (auto const& [key, points] : runs) {
      auto const& [name, ranks, nodes] = key;
      NcclTestsRun run{.op = op_named(name), .ranks = ranks, .nodes = nodes, .device = {}, .version = {}, .points = {}};
      for (auto const& [size, point] : points)
        run.points.push_back(point);
      all.push_back(std::move(run));
    }
    return all;
  }
};

int rank_count(std::optional<double> ranks, std::optional<double> devices_per_rank, std::optional<double> devices) {
  return count(devices.value_or(ranks.value_or(0) * devices_per_rank.value_or(1)));
}

std::vector<NcclTestsRun> rccl_runs(Json const& rows) {
  RcclRows result;
  for (Json const& row : rows) {
    if (!row.is_object())
      continue;
    std::string const name = row.contains("name") ? text(row, "name") : text(row, "collective");
    result.add(name, rank_count(number(row, "ranks"), number(row, "gpusPerRank"), number(row, "gpus")),
               count(number(row, "nodes")), number(row, "size").value_or(0), number(row, "inPlace").value_or(0) != 0,
               number(row, "time").value_or(0));
  }
  return result.result();
}

std::vector<std::string> cells_of(std::string const& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');)
    cells.push_back(cell.substr(0, cell.find('\r')));
  return cells;
}

std::vector<NcclTestsRun> rccl_csv(std::string_view content) {
  std::istringstream stream{std::string(content)};
  std::string line;
  std::getline(stream, line);
  std::vector<std::string> const names = cells_of(lower(line));
  RcclRows result;
  while (std::getline(stream, line)) {
    std::vector<std::string> const cells = cells_of(line);
    auto const cell = [&](std::string_view column) {
      auto const at = static_cast<std::size_t>(std::find(names.begin(), names.end(), column) - names.begin());
      return at < cells.size() ? cells[at] : std::string();
    };
    result.add(cell("collective"), rank_count(number(cell("ranks")), number(cell("gpusperrank")), number(cell("gpus"))),
               count(number(cell("nodes"))), number(cell("size")).value_or(0), number(cell("inplace")).value_or(0) != 0,
               number(cell("time")).value_or(0));
  }
  return result.result();
}

std::vector<NcclTestsRun> read_json(std::string_view content, std::string const& name) {
  Json const document = Json::parse(content, nullptr, false);
  if (document.is_discarded())
    throw InputError(
        fmt::format("{}: begins like JSON but is not; must be text, JSON or CSV of nccl-tests or rccl-tests", name));
  if (document.is_array())
    return rccl_runs(document);
  if (!document.contains("results") || !document["results"].is_array())
    throw InputError(fmt::format("{}: results: must be the list that nccl-tests writes with -J", name));
  return {nccl_run(document)};
}

} // namespace

std::vector<NcclTestsRun> read_nccl_tests_text(std::string_view content, std::string const& name) {
  std::size_t const begin = content.find_first_not_of(" \t\r\n");
  bool const json = begin != std::string_view::npos &&
                    (content[begin] == '{' || (content[begin] == '[' && content.substr(begin).find("]<std") > 12));
  bool const csv = begin != std::string_view::npos && content.substr(begin).starts_with("numCycle,");
  std::vector<NcclTestsRun> runs = json  ? read_json(content, name)
                                   : csv ? rccl_csv(content.substr(begin))
                                         : TextReader().read(content);
  std::erase_if(runs, [](NcclTestsRun const& run) { return run.points.empty(); });
  if (runs.empty())
    throw InputError(
        fmt::format("{}: has no row of nccl-tests or rccl-tests (size, count, type, redop, root, time, ...)", name));
  return runs;
}

std::vector<NcclTestsRun> read_nccl_tests(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw InputError(fmt::format("{}: cannot be read", path));
  std::string const content{std::istreambuf_iterator<char>(file), {}};
  std::vector<NcclTestsRun> runs = read_nccl_tests_text(content, path);
  // all_gather and all-to-all have the same rows: where nothing names the operation, the file's name may.
  if (std::optional<CollectiveOp> const named = op_named(path.substr(path.find_last_of('/') + 1)))
    for (NcclTestsRun& run : runs)
      if (!run.op || (*run.op == CollectiveOp::all_gather && *named == CollectiveOp::all_to_all))
        run.op = named;
  return runs;
}

} // namespace foreplan

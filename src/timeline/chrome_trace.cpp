#include "timeline/chrome_trace.hpp"

#include "program/program.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <set>

namespace foreplan {

namespace {

constexpr int host_process = 100'000; // + rank: the process id of the rank's host; the device's is the rank itself
constexpr int first_stream = 7;       // PyTorch's default stream; others follow

std::string_view torch_type(DType dtype) {
  switch (dtype) {
    case DType::bf16: return "BFloat16";
    case DType::fp16: return "Half";
    case DType::fp32: return "Float";
    case DType::int32: return "Int";
    case DType::uint8: return "Byte";
  }
  return "?";
}

std::string escaped(std::string_view text) {
  std::string result;
  for (char c : text)
    if (c == '"' || c == '\\')
      result += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20)
      result += ' ';
    else
      result += c;
  return result;
}

std::string ranks_text(std::vector<Rank> const& ranks) {
  std::vector<std::int32_t> numbers;
  for (Rank rank : ranks)
    numbers.push_back(rank.value());
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

// Groups have numbers, in the order in which they are met.
class Groups {
public:
  std::size_t number_of(TraceCollective const& collective) {
    std::string const ranks = ranks_text(collective.ranks);
    for (std::size_t i = 0; i < known_.size(); ++i)
      if (known_[i].first == collective.group && known_[i].second == ranks)
        return i;
    known_.emplace_back(collective.group, ranks);
    return known_.size() - 1;
  }

private:
  std::vector<std::pair<std::string, std::string>> known_; // name, ranks
};

// Events of one file. Times are microseconds with three digits, as PyTorch writes them.
class Writer {
public:
  explicit Writer(std::ostream& out) : out_(out) {}

  template <class... Values>
  void event(fmt::format_string<Values...> text, Values&&... values) {
    out_ << (first_ ? "\n  {" : ",\n  {") << fmt::format(text, std::forward<Values>(values)...) << '}';
    first_ = false;
  }

  void name(std::string_view what, int process, int thread, std::string_view name) {
    event(R"("ph": "M", "name": "{}", "pid": {}, "tid": {}, "ts": 0, "args": {{"name": "{}"}})", what, process, thread,
          escaped(name));
  }

  void label(int process, std::string_view labels, int position) {
    event(R"("ph": "M", "name": "process_labels", "pid": {}, "tid": 0, "ts": 0, "args": {{"labels": "{}"}})", process,
          escaped(labels));
    event(R"("ph": "M", "name": "process_sort_index", "pid": {}, "tid": 0, "ts": 0, "args": {{"sort_index": {}}})",
          process, position);
  }

private:
  std::ostream& out_;
  bool first_ = true;
};

std::string micros(double seconds) { return fmt::format("{:.3f}", seconds * 1e6); }

// The end rounded as the next begin is, so that neighbours do not overlap.
std::string duration(double start, double end) {
  return fmt::format("{:.3f}", (std::round(end * 1e9) - std::round(start * 1e9)) / 1e3);
}

void write_names(Writer& writer, TraceRank const& rank, int position) {
  int const device = rank.rank.value(), host = host_process + device;
  writer.name("process_name", host, 0, "python");
  writer.label(host, fmt::format("CPU of rank {}, {}", device, rank.label), 2 * position);
  writer.name("process_name", device, 0, "python");
  writer.label(device, fmt::format("GPU {}: rank {}, {}", device, device, rank.label), 2 * position + 1);
  writer.name("thread_name", host, host, fmt::format("thread {} (python)", host));
  std::set<int> streams;
  for (TraceKernel const& kernel : rank.kernels)
    streams.insert(kernel.stream);
  for (int stream : streams) {
    writer.name("thread_name", device, first_stream + stream,
                fmt::format("stream {}: {}", first_stream + stream, to_string(static_cast<Stream>(stream))));
    writer.event(
        R"("ph": "M", "name": "thread_sort_index", "pid": {}, "tid": {}, "ts": 0, "args": {{"sort_index": {}}})",
        device, first_stream + stream, first_stream + stream);
  }
}

void write_step(Writer& writer, TraceRank const& rank, double step) {
  int const device = rank.rank.value(), host = host_process + device;
  writer.event(
      R"("ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": {}, "tid": {}, "ts": 0.000, "dur": {}, "args": {{"External id": 1, "Ev Idx": 0}})",
      host, host, micros(step));
  writer.event(
      R"("ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#1", "pid": {}, "tid": {}, "ts": 0.000, "dur": {}, "args": {{"External id": 1}})",
      device, first_stream, micros(step));
}

std::string collective_arguments(TraceCollective const& c, std::size_t group, std::int64_t sequence) {
  std::string text = fmt::format(
      R"(, "Collective name": "{}", "dtype": "{}", "In msg nelems": {}, "Out msg nelems": {}, "Group size": {}, "Process Group Name": "{}", "Process Group Description": "{}", "Process Group Ranks": "{}", "Seq": {}, "In split size": "[]", "Out split size": "[]")",
      c.name, torch_type(c.dtype), c.elements_in, c.elements_out, c.ranks.size(), group, escaped(c.group),
      ranks_text(c.ranks), sequence);
  if (c.name == "send" || c.name == "recv")
    text += fmt::format(R"(, "Src Rank": {}, "Dst Rank": {})", c.ranks.front().value(), c.ranks.back().value());
  return text;
}

void write_kernels(Writer& writer, TraceRank const& rank, Groups& groups, std::int64_t& correlation) {
  int const device = rank.rank.value(), host = host_process + device;
  std::int64_t sequence = 0;
  for (TraceKernel const& kernel : rank.kernels) {
    ++correlation;
    writer.event(
        R"("ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {{"correlation": {}, "cbid": 211}})",
        host, host, micros(kernel.issue_begin), duration(kernel.issue_begin, kernel.issue_end), correlation);
    std::string arguments = fmt::format(
        R"("device": {}, "stream": {}, "correlation": {}, "External id": {}, "op": "{}", "where": "{}")", device,
        first_stream + kernel.stream, correlation, correlation, escaped(kernel.op), kernel.where);
    if (kernel.collective)
      arguments += collective_arguments(*kernel.collective, groups.number_of(*kernel.collective), ++sequence);
    writer.event(
        R"("ph": "X", "cat": "kernel", "name": "{}", "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {{{}}})",
        escaped(kernel.name), device, first_stream + kernel.stream, micros(kernel.start),
        duration(kernel.start, kernel.end), arguments);
  }
}

} // namespace

void write_chrome_trace(std::ostream& out, TraceJob const& job, std::vector<TraceRank> const& ranks) {
  int const first = ranks.empty() ? 0 : ranks.front().rank.value();
  out << fmt::format(R"({{"schemaVersion": 1, "deviceProperties": [{{"id": {}, "name": "{}"}}],
 "distributedInfo": {{"backend": "{}", "rank": {}, "world_size": {}}},
 "displayTimeUnit": "ms", "baseTimeNanoseconds": 0, "traceName": "{}",
 "traceEvents": [)",
                     first, escaped(job.device), job.backend, first, job.world_size, escaped(job.name));
  Writer writer(out);
  Groups groups;
  std::int64_t correlation = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    write_names(writer, ranks[i], static_cast<int>(i));
    write_step(writer, ranks[i], job.step);
    write_kernels(writer, ranks[i], groups, correlation);
  }
  out << "\n]}\n";
}

} // namespace foreplan

#include "validate/devices/suite/suite.hpp"

#include "program/amounts.hpp"
#include "program/compile.hpp"
#include "validate/devices/clock.hpp"
#include "validate/devices/cpu/gemm.hpp"
#include "validate/devices/cpu/transfers.hpp"
#include "validate/devices/measure.hpp"
#include "validate/devices/runner.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <tuple>

#include <unistd.h>

namespace foreplan {
namespace {

void say(Job const& job, std::string const& what) {
  if (job.rank() == 0)
    fmt::print(stderr, "calibrate: {}\n", what);
}

// ------------------------------------------------------------------------------------------------------------- kernels

// Shapes between which those of real plans lie; every op kind is in one of them.
struct Training {
  Model model;
  Plan plan;
};

Model gpt(std::int64_t hidden, std::int64_t vocabulary) {
  Model model;
  model.name = "GPT";
  model.layers = 2;
  model.hidden = hidden;
  model.head_size = 64;
  model.heads = model.kv_heads = hidden / model.head_size;
  model.ffn = 4 * hidden;
  model.vocabulary = vocabulary;
  model.max_positions = 2048;
  model.norm = NormKind::layer_norm;
  model.activation = Activation::gelu;
  model.positions = Positions::learned;
  model.biases = true;
  return model;
}

Model llama(std::int64_t hidden, std::int64_t vocabulary) {
  Model model;
  model.name = "Llama";
  model.layers = 2;
  model.hidden = hidden;
  model.head_size = 64;
  model.heads = hidden / model.head_size;
  model.kv_heads = std::max<std::int64_t>(1, model.heads / 4);
  model.ffn = hidden * 11 / 4;
  model.vocabulary = vocabulary;
  model.max_positions = 2048;
  return model;
}

std::vector<Training> trainings(bool quick) {
  struct Tokens {
    std::int64_t length, sequences;
    Attention attention;
    bool is_llama;
  };
  constexpr std::array<Tokens, 6> tokens{{{128, 1, Attention::fused, false},
                                          {256, 2, Attention::unfused, true},
                                          {512, 1, Attention::fused, true},
                                          {512, 1, Attention::unfused, false},
                                          {1024, 1, Attention::fused, true},
                                          {1024, 2, Attention::fused, false}}};
  std::vector<Training> all;
  for (DType dtype : quick ? std::vector{DType::bf16} : std::vector{DType::bf16, DType::fp32})
    for (std::int64_t hidden : quick ? std::vector{256, 512} : std::vector{128, 256, 512, 1024})
      for (Tokens const& shape : tokens) {
        Plan plan;
        plan.parameter_dtype = dtype;
        plan.sequence_length = shape.length;
        plan.micro_batch = plan.global_batch = shape.sequences;
        plan.attention = shape.attention;
        Model model = shape.is_llama ? llama(hidden, 16 * hidden) : gpt(hidden, 8 * hidden);
        model.dropout = shape.attention == Attention::unfused;
        all.push_back({std::move(model), plan});
      }
  return all;
}

// Of several steps the median, as `foreplan validate` takes it of a run: of every op, and of the whole.
struct StepTimes {
  std::vector<double> ops; // by instance
  double step = 0;
  double busy = 0; // sum of the ops of the median step
};

StepTimes run_steps(Runner& runner) {
  constexpr int steps = 7;
  std::vector<std::vector<double>> ops(runner.instances().size());
  std::vector<std::pair<double, double>> all; // of each step: seconds, busy
  for (int step = 0; step <= steps; ++step) { // the first one warms up
    runner.prepare_step();
    MPI_Barrier(MPI_COMM_WORLD);
    double const begin = now();
    runner.run_step();
    double const taken = now() - begin;
    if (step == 0)
      continue;
    double busy = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      ops[i].push_back(runner.times()[i].end - runner.times()[i].start);
      busy += ops[i].back();
    }
    all.emplace_back(taken, busy);
  }
  std::sort(all.begin(), all.end());
  StepTimes times{{}, all[all.size() / 2].first, all[all.size() / 2].second};
  for (std::vector<double> const& seconds : ops)
    times.ops.push_back(median_of(seconds).value);
  return times;
}

// Seconds between ops that follow each other, beyond `known` a kernel: shared out among all kernels, or, if it has any,
// among the communication ops.
double gap_of(Runner const& runner, StepTimes const& times, double known) {
  auto const count = [&](auto const& is) {
    return static_cast<double>(std::count_if(runner.instances().begin(), runner.instances().end(),
                                             [&](Instance const& instance) { return is(instance.op->kind); }));
  };
  double const kernels = count([](OpKind kind) { return kernel_class(kind) != KernelClass::none; });
  double const transfers = count(is_communication);
  double const idle = times.step - times.busy - known * kernels;
  return std::max(0.0, idle / (transfers > 0 ? transfers : kernels));
}

// Of equal ops the mean, cold and warm caches as they are.
struct Row {
  double seconds = 0;
  int count = 0;
};
using RowKey = std::tuple<OpKind, DType, double, double>; // flops, bytes

std::string kernel_rows(Job& job, int threads, bool quick, double& gap) {
  std::vector<double> kernel_gaps;
  std::string rows;
  int done = 0;
  std::vector<Training> const all = trainings(quick);
  for (Training const& training : all) {
    Program const program = compile(training.model, training.plan);
    Runner runner(program, MPI_COMM_SELF, job, {.training = {}, .threads = threads});
    StepTimes const times = run_steps(runner);
    std::map<RowKey, Row> measured;
    for (std::size_t i = 0; i < times.ops.size(); ++i) {
      Instance const& instance = runner.instances()[i];
      Operands operands;
      for (TensorId id : instance.op->reads)
        operands.reads.push_back(&tensor_of(program.stages[0], instance, id));
      for (TensorId id : instance.op->writes)
        operands.writes.push_back(&tensor_of(program.stages[0], instance, id));
      if (kernel_class(instance.op->kind) == KernelClass::none)
        continue;
      Amount const amount = amount_of(*instance.op, operands);
      Row& row = measured[{instance.op->kind, working_dtype(operands), amount.flops.value(), amount.bytes.value()}];
      row.seconds += times.ops[i];
      ++row.count;
    }
    for (auto const& [key, row] : measured)
      rows += fmt::format("kernel,{},{},{},{},{}\n", to_string(std::get<0>(key)), to_string(std::get<1>(key)),
                          std::get<2>(key), std::get<3>(key), row.seconds / row.count);
    kernel_gaps.push_back(gap_of(runner, times, 0));
    say(job, fmt::format("kernels, {} of {} steps", ++done, all.size()));
  }
  std::nth_element(kernel_gaps.begin(), kernel_gaps.begin() + static_cast<std::ptrdiff_t>(kernel_gaps.size() / 2),
                   kernel_gaps.end());
  gap = kernel_gaps[kernel_gaps.size() / 2];
  return rows;
}

// ------------------------------------------------------------------------------------------------------ communication

Tensor flat_tensor(std::int64_t elements, DType dtype) {
  Tensor tensor;
  tensor.shape = {elements};
  tensor.dtype = dtype;
  return tensor;
}

// Median of several: the time until the last rank has its result, from when all had come.
template <class Work>
double together(Work const& work) {
  constexpr int repeats = 9;
  std::vector<double> seconds;
  for (int i = 0; i <= repeats; ++i) { // the first one warms up
    MPI_Barrier(MPI_COMM_WORLD);
    double const begin = now();
    work();
    double taken = now() - begin;
    MPI_Allreduce(MPI_IN_PLACE, &taken, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (i > 0)
      seconds.push_back(taken);
  }
  return median_of(seconds).value;
}

struct AlignedFree {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<char, AlignedFree>;

Memory allocate(std::int64_t bytes) {
  Memory memory(static_cast<char*>(std::aligned_alloc(cpu::file_alignment, static_cast<std::size_t>(bytes))));
  std::fill_n(memory.get(), bytes, char{0}); // real pages
  return memory;
}

std::string communication_rows(Job& job, bool quick) {
  std::string rows;
  int const ranks = job.size();
  std::int64_t const most = std::int64_t{1} << (quick ? 24 : 27); // bytes of a whole buffer
  Memory const whole = allocate(most);
  for (DType dtype : {DType::bf16, DType::fp32})
    for (OpKind kind : {OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter, OpKind::send}) {
      for (std::int64_t bytes = 1 << 13; bytes <= most; bytes *= 4) {
        std::int64_t const elements = bytes / size_of(dtype) / ranks * ranks;
        Tensor const all = flat_tensor(elements, dtype), own = flat_tensor(elements / ranks, dtype);
        Op op;
        op.kind = kind;
        // In place, as in programs: a rank's part lies where it belongs in the whole.
        Operand const large{whole.get(), &all}, small{whole.get() + job.rank() * own.elements() * size_of(dtype), &own};
        Operands operands{{&all}, {&all}};
        double const seconds = together([&] {
          Endpoint endpoint{.communicator = MPI_COMM_WORLD};
          if (kind == OpKind::all_gather)
            return communicate(op, Storage::as_planned, &small, &large, endpoint);
          if (kind == OpKind::reduce_scatter)
            return communicate(op, Storage::as_planned, &large, &small, endpoint);
          if (kind == OpKind::all_reduce)
            return communicate(op, Storage::as_planned, &large, &large, endpoint);
          endpoint.peer = job.rank() ^ 1;
          if (endpoint.peer >= ranks)
            return;
          if (job.rank() % 2 == 0)
            return communicate(op, Storage::as_planned, &large, nullptr, endpoint);
          Op receive;
          receive.kind = OpKind::receive;
          communicate(receive, Storage::as_planned, nullptr, &large, endpoint);
        });
        double const wire = wire_bytes(op, operands, ranks).value();
        for (OpKind named : kind == OpKind::send ? std::vector{kind, OpKind::receive} : std::vector{kind})
          rows += fmt::format("communication,{},{},{},{},{}\n", to_string(named), to_string(dtype), ranks, wire,
                              seconds);
      }
      say(job, fmt::format("communication, {} {}", to_string(kind), to_string(dtype)));
    }
  return rows;
}

// What passing from a stream to another and back costs, by a step in which nothing overlaps: tensor-parallel.
double communication_gap(Job& job, int threads, double kernel_gap) {
  Plan plan;
  plan.tp = job.size();
  plan.sequence_length = 256;
  plan.micro_batch = plan.global_batch = 1;
  Model model = gpt(64 * std::int64_t{job.size()} * 2, std::int64_t{1024} * job.size());
  Program const program = compile(model, plan);
  Runner runner(program, MPI_COMM_WORLD, job, {.training = {}, .threads = threads});
  return gap_of(runner, run_steps(runner), kernel_gap);
}

// ------------------------------------------------------------------------------------------------------------- memory

// McCalpin's triad a = b + q c on all ranks: bytes per second of one.
double triad_rate() {
  constexpr std::int64_t elements = 1 << 24;
  std::vector<float> a(elements, 1), b(elements, 2), c(elements, 3);
  double const seconds = together([&] {
#pragma omp parallel for simd
    for (std::int64_t i = 0; i < elements; ++i)
      a[static_cast<std::size_t>(i)] = b[static_cast<std::size_t>(i)] + 3 * c[static_cast<std::size_t>(i)];
  });
  return 12.0 * elements / seconds;
}

// Resident memory of this process, bytes.
double resident() {
  std::ifstream file("/proc/self/statm");
  double all = 0, pages = 0;
  file >> all >> pages;
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

std::string versions() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string const mpi(text, static_cast<std::size_t>(length));
  return cpu::product_library() + ", " + mpi.substr(0, mpi.find(','));
}

std::string transfer_rows(Job& job, std::string const& scratch) {
  constexpr std::int64_t bytes = std::int64_t{1} << 26;
  Memory const host = allocate(bytes), device = allocate(bytes);
  double const copy = together([&] { cpu::copy_memory(host.get(), device.get(), bytes); });
  std::string rows = fmt::format("copy,{}\n", static_cast<double>(bytes) / copy);
  cpu::StorageFile file(fmt::format("{}/foreplan-suite-{}.bin", scratch, job.rank()), bytes);
  double const write = together([&] { file.write(0, host.get(), bytes); });
  double const read = together([&] { file.read(0, device.get(), bytes); });
  return rows + fmt::format("file_write,{}\nfile_read,{}\nfile,{}\n", static_cast<double>(bytes) / write,
                            static_cast<double>(bytes) / read, file.how());
}

} // namespace

std::string run_suite(Job& job, int threads, std::string const& scratch, bool quick) {
  omp_set_num_threads(threads);
  std::string rows = fmt::format("base_memory,{}\nversions,{}\n", resident(), versions());
  rows += fmt::format("triad,{}\n", triad_rate());
  say(job, "memory bandwidth");
  rows += transfer_rows(job, scratch);
  say(job, "copies and files");
  double kernel_gap = 0;
  rows += kernel_rows(job, threads, quick, kernel_gap);
  rows += fmt::format("kernel_gap,{}\n", kernel_gap);
  if (job.size() > 1) {
    rows += communication_rows(job, quick);
    rows += fmt::format("communication_gap,{}\n", communication_gap(job, threads, kernel_gap));
  }
  return rows;
}

} // namespace foreplan

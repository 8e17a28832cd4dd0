#include "validate/devices/runner.hpp"

#include "validate/devices/clock.hpp"
#include "validate/devices/reference_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <numeric>

namespace foreplan {
namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

void wait_for(std::atomic<std::int32_t> const& counter, std::int32_t least) {
  for (std::int32_t value = counter.load(std::memory_order_acquire); value < least;
       value = counter.load(std::memory_order_acquire))
    counter.wait(value, std::memory_order_acquire);
}

std::vector<int> job_ranks_of(MPI_Comm world) {
  int size = 0;
  MPI_Comm_size(world, &size);
  std::vector<int> ranks(at(size)), result(at(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  MPI_Group own = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
  MPI_Comm_group(world, &own);
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_translate_ranks(own, size, ranks.data(), all, result.data());
  MPI_Group_free(&own);
  MPI_Group_free(&all);
  return result;
}

Coordinate own_coordinate(Plan const& plan, MPI_Comm world) {
  int rank = 0;
  MPI_Comm_rank(world, &rank);
  return coordinate_of(plan, Rank(rank));
}

} // namespace

Runner::Runner(Program const& program, MPI_Comm world, Job& job, RunnerOptions const& options)
    : program_(program), job_(job), options_(options), job_ranks_(job_ranks_of(world)),
      memory_(make_rank_memory(program, own_coordinate(program.plan, world), options.storage, options.training.seed,
                               [&job] { job.made_progress(); })),
      communicators_(std::make_unique<Communicators>(program, world)) {
  context_ = {coordinate(), program.plan.gradient_clip, options.training, 1};
  times_.resize(instances().size());
  find_waits();
  find_endpoints();
  job_.set_names(names());
  start_threads();
}

Runner::~Runner() {
  ends_ = true;
  begun_.fetch_add(1, std::memory_order_release);
  begun_.notify_all();
  for (StreamState& stream : streams_)
    if (stream.thread.joinable())
      stream.thread.join();
  job_.set_names({});
}

// Of each other stream only the last op waited for counts: a stream runs in order.
void Runner::find_waits() {
  std::vector<std::int32_t> ordinal;                                        // of the instances on their streams, from 1
  std::array<std::array<std::int32_t, stream_count>, stream_count> known{}; // [of][by]: the waits that are over already
  awaited_.resize(instances().size());
  for (Instance const& instance : instances()) {
    auto const own = static_cast<std::size_t>(instance.op->stream);
    first_wait_.push_back(static_cast<std::int32_t>(waits_.size()));
    std::array<std::int32_t, stream_count> needed{};
    for (std::int32_t target : instance.waits) {
      auto const stream = static_cast<std::size_t>(instances()[at(target)].op->stream);
      needed[stream] = std::max(needed[stream], ordinal[at(target)]);
    }
    for (std::size_t stream = 0; stream < stream_count; ++stream)
      if (stream != own && needed[stream] > known[stream][own]) {
        known[stream][own] = needed[stream];
        waits_.push_back({static_cast<std::int32_t>(stream), needed[stream]});
        awaited_[at(streams_[stream].instances[at(needed[stream] - 1)])] = true;
      }
    streams_[own].instances.push_back(static_cast<std::int32_t>(ordinal.size()));
    ordinal.push_back(static_cast<std::int32_t>(streams_[own].instances.size()));
    if (instance.op->host_sync)
      awaited_[ordinal.size() - 1] = true;
  }
  first_wait_.push_back(static_cast<std::int32_t>(waits_.size()));
  for (StreamState const& stream : streams_)
    if (!stream.instances.empty())
      awaited_[at(stream.instances.back())] = true; // by the step's end
}

void Runner::find_endpoints() {
  endpoints_.resize(instances().size());
  for (std::size_t i = 0; i < instances().size(); ++i)
    if (is_communication(instances()[i].op->kind))
      endpoints_[i] = communicators_->endpoint_of(*instances()[i].op);
}

void Runner::start_threads() {
  for (int stream = 0; stream < stream_count; ++stream)
    if (!streams_[at(stream)].instances.empty())
      streams_[at(stream)].thread = std::thread([this, stream] { run_stream(stream); });
}

// -------------------------------------------------------------------------------------------------------------- a step

void Runner::prepare_step() {
  ++step_;
  context_.step = step_;
  write_ids(program_, memory_, options_.training.seed, step_);
  if (options_.poison)
    for (Range range : memory_.undefined)
      poison(memory_, range);
  issued_ = 0;
  for (StreamState& stream : streams_)
    stream.ended = 0;
}

void Runner::run_step() {
  begun_.store(step_, std::memory_order_release);
  begun_.notify_all();
  auto const issue_until = [this](std::size_t count) {
    issued_.store(static_cast<std::int32_t>(count), std::memory_order_release);
    issued_.notify_all();
  };
  // The host issues until it has to wait; on a CPU that takes no time.
  std::array<std::int32_t, stream_count> count{};
  for (std::size_t i = 0; i < instances().size(); ++i) {
    Op const& op = *instances()[i].op;
    ++count[static_cast<std::size_t>(op.stream)];
    if (op.host_sync) {
      issue_until(i + 1);
      wait_for(streams_[static_cast<std::size_t>(op.stream)].ended, count[static_cast<std::size_t>(op.stream)]);
    }
  }
  issue_until(instances().size());
  for (StreamState const& stream : streams_)
    wait_for(stream.ended, static_cast<std::int32_t>(stream.instances.size()));
}

void Runner::run_stream(int stream) {
  StreamState& state = streams_[at(stream)];
  std::atomic<std::int32_t>& running = job_.self().instance[at(stream)];
  for (std::int32_t step = 1;; ++step) {
    wait_for(begun_, step);
    if (ends_)
      return;
    for (std::int32_t position : state.instances) {
      wait_for(issued_, position + 1);
      for (std::int32_t wait = first_wait_[at(position)]; wait < first_wait_[at(position) + 1]; ++wait)
        wait_for(streams_[at(waits_[at(wait)].stream)].ended, waits_[at(wait)].count);
      running.store(position + 1, std::memory_order_relaxed);
      run_instance(position);
      running.store(0, std::memory_order_relaxed);
      job_.made_progress();
      state.ended.fetch_add(1, std::memory_order_acq_rel);
      if (awaited_[at(position)])
        state.ended.notify_all();
    }
  }
}

void Runner::run_instance(std::int32_t position) {
  BoundInstance const& instance = memory_.layout.bound[at(position)];
  OpTimes& times = times_[at(position)];
  times.arrival = times.start = now();
  try {
    execute(instance, position);
  } catch (std::exception const& error) {
    job_.fail(fmt::format("{}: {}", describe(instances()[at(position)]), error.what()));
  }
  times.end = now();
  if (options_.poison)
    for (std::int32_t i = 0; i < instance.release_count; ++i)
      poison(memory_, memory_.layout.releases[at(instance.first_release + i)]);
}

void Runner::execute(BoundInstance const& instance, std::int32_t position) {
  Op const& op = *instance.op;
  Operand const* const first = memory_.operands.data() + instance.first_operand;
  std::span<Operand const> const reads(first, at(instance.reads));
  std::span<Operand const> const writes(first + instance.reads, at(instance.writes));
  if (op.kind == OpKind::wait)
    return;
  if (is_communication(op.kind))
    return communicate(op, options_.storage, reads.empty() ? nullptr : reads.data(),
                       writes.empty() ? nullptr : writes.data(), endpoints_[at(position)]);
  if (op.stream == Stream::disk_read || op.stream == Stream::disk_write)
    return copy_to_or_from_drive(instance, first);
  if (options_.storage == Storage::as_planned)
    return run_kernel(op, reads, writes, context_, options_.threads);
  run_reference_kernel(options_.storage, op, reads, writes, context_);
}

void Runner::copy_to_or_from_drive(BoundInstance const& instance, Operand const* operands) {
  bool const reads = instance.op->stream == Stream::disk_read;
  BoundOperand const& on_drive = memory_.layout.operands[at(instance.first_operand + (reads ? 0 : 1))];
  std::int64_t const offset = on_drive.on(coordinate()) - memory_.layout.drives.begin;
  std::int64_t const bytes = operands[0].elements() * size_of(memory_.type_of(*operands[0].tensor));
  if (reads)
    memory_.drive->read(offset, operands[1].data, bytes);
  else
    memory_.drive->write(offset, operands[0].data, bytes);
}

// ------------------------------------------------------------------------------------------------------------- results

double Runner::loss() const {
  StageProgram const& stage = program_.stages[at(coordinate().pp)];
  return load(memory_.at(memory_.layout.persistent[loss_buffer]),
              element_type(memory_.storage, stage.buffers[loss_buffer].dtype), 0);
}

Job::Names Runner::names() {
  auto const plan_rank = [this](int job_rank) {
    return std::find(job_ranks_.begin(), job_ranks_.end(), job_rank) - job_ranks_.begin();
  };
  return {
      .op =
          [this, plan_rank](int job_rank, std::int32_t position) {
            auto const rank = plan_rank(job_rank);
            if (at(static_cast<std::int32_t>(rank)) == job_ranks_.size())
              return std::string();
            Coordinate const where = coordinate_of(program_.plan, Rank(rank));
            if (where.pp == coordinate().pp)
              return describe(instances()[at(position)]);
            return describe(instances_of(program_, program_.stages[at(where.pp)])[at(position)]);
          },
      .peers =
          [this, plan_rank](std::int32_t position) {
            std::vector<int> peers;
            for (Rank peer : peers_of(program_.plan, Rank(plan_rank(job_.rank())), *instances()[at(position)].op))
              peers.push_back(job_ranks_[peer.index()]);
            return peers;
          },
  };
}

std::string describe(Instance const& instance) {
  std::string where;
  if (instance.layer >= 0)
    where = fmt::format("layer {}, micro-batch {}, ", instance.layer, instance.micro_batch.value());
  return fmt::format("op '{}' ({}stream {})", instance.op->name, where, to_string(instance.op->stream));
}

} // namespace foreplan

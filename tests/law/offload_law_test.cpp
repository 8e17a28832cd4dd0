// What ZeRO-Offload and ZeRO-Infinity keep in each memory and move between them (arXiv 2101.06840, 2104.07857; notes:
// algorithms.md 4), read off the programs' buffers and ops.
#include "model/model.hpp"
#include "planner/estimators.hpp"
#include "planner/explain_offload.hpp"
#include "program/compile.hpp"
#include "tests/catch.hpp"
#include "tests/law/program_counts.hpp"

#include <map>

using namespace foreplan;

namespace {

constexpr int ranks = 8;
constexpr double micro_batches = 3;

// Every width is a multiple of 8, so that buckets need no padding.
Model llama() {
  Model model;
  model.layers = 4;
  model.hidden = 64;
  model.heads = model.kv_heads = 8;
  model.head_size = 8;
  model.ffn = 192;
  model.vocabulary = 256;
  return model;
}

// bf16 gradients from the layers, fp32 where they add up.
Plan on(MemoryTier optimizer, MemoryTier parameters, int zero_stage = 3) {
  Plan plan;
  plan.dp = ranks;
  plan.zero_stage = zero_stage;
  plan.offload.optimizer = optimizer;
  plan.offload.parameters = parameters;
  plan.sequence_length = 16;
  plan.global_batch = ranks * static_cast<std::int64_t>(micro_batches);
  return plan;
}

// Persistent bytes of a memory; buffers through which others pass are not counted.
double kept(StageProgram const& stage, MemoryTier tier) {
  double bytes = 0;
  for (Buffer const& buffer : stage.buffers)
    if (buffer.persistent && buffer.tier == tier && buffer.category != Category::communication &&
        buffer.category != Category::scratch)
      bytes += bytes_of(buffer);
  return bytes;
}

// Bytes that a stream copies of a category: at the end that is not a buffer of the host.
double copied(StageProgram const& stage, Stream stream, Category category) {
  double bytes = 0;
  for (Element const& element : stage.elements) {
    Op const* op = std::get_if<Op>(&element);
    if (op == nullptr || op->kind != OpKind::copy || op->stream != stream)
      continue;
    bool const arrives = stream == Stream::copy_up || stream == Stream::disk_write;
    Tensor const& tensor = stage[arrives ? op->writes[0] : op->reads[0]];
    bytes += tensor.category == category ? bytes_of(tensor) : 0;
  }
  return bytes;
}

constexpr MemoryTier device = MemoryTier::device, host = MemoryTier::host, disk = MemoryTier::disk;

} // namespace

// Of each of its P / N parameters a rank has two bytes, four of gradient and twelve of states, where they live.
TEST_CASE("Infinity: 18 P / N bytes on the host or on drives, nothing persistent on the device") {
  double const part = static_cast<double>(parameter_count(llama())) / ranks;
  auto stage = [&](Plan const& plan) { return compile(llama(), plan).stages[0]; };
  StageProgram const on_host = stage(on(host, host)), on_disk = stage(on(disk, disk)), mixed = stage(on(disk, host));
  CHECK(kept(on_host, host) == 18 * part);
  CHECK(kept(on_host, device) == 0);
  CHECK(kept(on_disk, disk) == 18 * part);
  CHECK(kept(on_disk, host) == 0);
  CHECK(kept(on_disk, device) == 0);
  CHECK(kept(mixed, host) == 2 * part);
  CHECK(kept(mixed, disk) == 16 * part);
}

// ZeRO-Offload with stage 2: the device keeps 2 P, whole parameters in 16 bits; 16 P / N and a copy of the part for the
// device, 2 P / N, on the host.
TEST_CASE("Offload with ZeRO 2: 2 P on the device, 18 P / N on the host") {
  double const parameters = static_cast<double>(parameter_count(llama()));
  StageProgram const stage = compile(llama(), on(host, device, 2)).stages[0];
  CHECK(kept(stage, device) == 2 * parameters);
  CHECK(kept(stage, host) == 18 * parameters / ranks);
}

// A shard's gradients go down in every micro-batch and, but for the first, come up before. States pass drives once each
// way. Gradients are read once more, for the update. Whole parameters come up once.
TEST_CASE("bytes of a step: gradients 4 P / N down m times, up m - 1 times; states 12 P / N each way") {
  double const part = static_cast<double>(parameter_count(llama())) / ranks;
  StageProgram const on_host = compile(llama(), on(host, device, 2)).stages[0];
  CHECK(copied(on_host, Stream::copy_down, Category::gradients) == 4 * part * micro_batches);
  CHECK(copied(on_host, Stream::copy_up, Category::gradients) == 4 * part * (micro_batches - 1));
  CHECK(copied(on_host, Stream::copy_up, Category::parameters) == 2 * part);
  StageProgram const on_disk = compile(llama(), on(disk, device, 2)).stages[0];
  CHECK(copied(on_disk, Stream::disk_read, Category::optimizer) == 12 * part);
  CHECK(copied(on_disk, Stream::disk_write, Category::optimizer) == 12 * part);
  CHECK(copied(on_disk, Stream::disk_write, Category::gradients) == 4 * part * micro_batches);
  CHECK(copied(on_disk, Stream::disk_read, Category::gradients) == 4 * part * micro_batches);
}

// Every gather is of N shards, one of which each rank brings up over its own link: 1 / N of what is gathered. Updated
// parameters go to their home once.
TEST_CASE("bandwidth-centric: a rank brings up 1 / N of what it gathers") {
  for (MemoryTier tier : {host, disk}) {
    StageProgram const stage = compile(llama(), on(disk, tier)).stages[0];
    double gathered = 0;
    for (Element const& element : stage.elements)
      if (Op const* op = std::get_if<Op>(&element); op != nullptr && op->kind == OpKind::all_gather)
        gathered += bytes_of(stage[op->writes[0]]);
    CHECK(gathered > 2 * 2 * static_cast<double>(parameter_count(llama())));
    CHECK(copied(stage, Stream::copy_up, Category::parameters) == gathered / ranks);
    CHECK(copied(stage, Stream::disk_read, Category::parameters) == (tier == disk ? gathered / ranks : 0));
    CHECK(copied(stage, Stream::disk_write, Category::parameters) ==
          (tier == disk ? 2 * static_cast<double>(parameter_count(llama())) / ranks : 0));
  }
}

// A block's input: s b h elements of 2 bytes for each micro-batch, down once and up once; the host holds as many as are
// under way, of one micro-batch here.
TEST_CASE("checkpoints: 2 s b h bytes a block and micro-batch, each way") {
  Plan plan = on(device, device, 1);
  plan.recompute = Recompute::full;
  plan.offload.checkpoints = true;
  StageProgram const stage = compile(llama(), plan).stages[0];
  double const block = 2.0 * 16 * 64;
  CHECK(copied(stage, Stream::copy_down, Category::activations) == 4 * block * micro_batches);
  CHECK(copied(stage, Stream::copy_up, Category::activations) == 4 * block * micro_batches);
  double pinned = 0;
  for (Buffer const& buffer : stage.buffers)
    pinned += buffer.tier == host ? bytes_of(buffer) : 0;
  CHECK(pinned == 4 * block);
}

// Section 4 of the paper, at 70 TFLOP/s: s b = 1024 flops a byte of parameters and gradients, 70 GB/s; s b / 4 of the
// optimizer's states, s = 1024 and b = 2, 1.5 TB/s; 24 h ci of checkpoints, h = 2048, 2 GB/s.
TEST_CASE("Infinity's intensities and efficiencies: 50.6, 91.6 and 58.4 %") {
  FlopsPerSecond const peak(70e12);
  CHECK(parameter_intensity(1024, 1) == 1024);
  CHECK(optimizer_intensity(1024, 2) == 512);
  CHECK(checkpoint_intensity(2048) == 24 * 2048);
  CHECK(efficiency(1024, BytesPerSecond(70e9), peak) == Approx(0.506).margin(0.0005));
  CHECK(efficiency(512, BytesPerSecond(1.5e12), peak) == Approx(0.916).margin(0.0005));
  CHECK(efficiency(checkpoint_intensity(2048), BytesPerSecond(2e9), peak) == Approx(0.584).margin(0.0005));
}

// t5-3b on 8 GPUs of a node, as DeepSpeed's documentation prints it (memory.rst), in GiB: ZeRO 2 by the older formula
// 15.93, by the current one 11.28 (2 P + 18 P / 8); then 5.31, 6.10, 0.79 and 0.12.
TEST_CASE("DeepSpeed's estimators: t5-3b on 8 GPUs") {
  EstimatedModel const t5{2851e6, 32.9e6};
  std::vector<Estimate> const estimates = deepspeed_estimates(t5, 8, 1, Plan{});
  auto gib = [](Bytes bytes) { return bytes.value() / (1 << 30); };
  REQUIRE(estimates.size() == 5);
  CHECK(gib(estimates[0].documented) == Approx(15.93).margin(0.01));
  double const current[] = {11.28, 5.31, 6.10, 0.79, 0.12};
  for (std::size_t i = 0; i < estimates.size(); ++i)
    CHECK(gib(estimates[i].device) == Approx(current[i]).margin(0.01));
  // P max(4 GPUs, 16) 1.5, 16 P 1.5 and 18 P 1.5.
  CHECK(estimates[1].host.value() == Approx(2851e6 * 32 * 1.5));
  CHECK(estimates[3].host.value() == Approx(2851e6 * 16 * 1.5));
  CHECK(estimates[4].host.value() == Approx(2851e6 * 18 * 1.5));
}

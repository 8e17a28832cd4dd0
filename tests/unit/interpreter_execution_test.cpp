// Storage, execution graph and data of the interpreter, on programs small enough to follow by hand.
#include "interpreter/data.hpp"
#include "interpreter/execution_graph.hpp"
#include "interpreter/interpreter.hpp"
#include "program/compile.hpp"
#include "tests/catch.hpp"
#include "tests/equivalence/models.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string>

using namespace foreplan;

namespace {

// A stage of step-level ops that read and write whole buffers of the stage.
struct StageWriter {
  Program program;
  StageProgram stage;

  explicit StageWriter(Plan const& plan = {}) {
    program.plan = plan;
    program.plan.sequence_length = 1;
    program.plan.global_batch = plan.dp;
    buffer(1, true); // the loss
  }
  TensorId buffer(std::int64_t elements, bool persistent = false) {
    stage.buffers.push_back({"buffer", Category::scratch, DType::fp32, elements, persistent});
    Tensor tensor;
    tensor.buffer = {BufferRef::Scope::stage, static_cast<std::int32_t>(stage.buffers.size()) - 1};
    tensor.shape = {elements};
    stage.tensors.push_back(tensor);
    return TensorId(static_cast<std::int64_t>(stage.tensors.size()) - 1);
  }
  OpId op(OpKind kind, Stream stream, std::vector<TensorId> reads, std::vector<TensorId> writes,
          std::vector<OpId> waits = {}, std::vector<TensorId> const& releases = {}) {
    Op op;
    op.id = OpId(stage.next_op++);
    op.kind = kind;
    op.name = "op " + std::to_string(op.id.value());
    op.stream = stream;
    op.reads = std::move(reads);
    op.writes = std::move(writes);
    op.waits = std::move(waits);
    for (TensorId id : releases)
      op.releases.push_back(stage[id].buffer);
    stage.elements.emplace_back(op);
    return op.id;
  }
  Program const& finish() {
    for (int s = 0; s < program.plan.pp; ++s)
      program.stages.push_back(stage);
    return program;
  }
};

std::vector<StageStorage> lay_out_all(Program const& program) {
  std::vector<StageStorage> stages;
  for (StageProgram const& stage : program.stages)
    stages.push_back(lay_out(program, stage, Reuse::same_size));
  return stages;
}

// What the error says; empty when there is none.
template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (std::runtime_error const& error) {
    return error.what();
  }
  return "";
}

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

// Nodes in the order in which they ran.
std::vector<std::size_t> run_order(Program const& program, Order const& order) {
  std::vector<StageStorage> const stages = lay_out_all(program);
  std::vector<std::size_t> ran;
  execute(program, stages, make_execution_graph(program, stages), order,
          [&](std::size_t node) { ran.push_back(node); });
  return ran;
}

} // namespace

TEST_CASE("a temporary's memory is free for what is issued after its release") {
  StageWriter writer;
  TensorId const a = writer.buffer(4), b = writer.buffer(4), c = writer.buffer(4), d = writer.buffer(2);
  writer.op(OpKind::zero_fill, Stream::compute, {}, {a});
  writer.op(OpKind::cast, Stream::compute, {a}, {b}, {}, {a}); // b lives beside a, then a goes
  writer.op(OpKind::cast, Stream::compute, {b}, {c}, {}, {b}); // c in a's place; then b goes
  writer.op(OpKind::zero_fill, Stream::compute, {}, {d});      // half of b's place
  StageStorage const storage = lay_out_all(writer.finish()).front();
  auto const address = [&](std::size_t operand) { return storage.operands[operand].address - storage.arena; };
  CHECK(storage.arena == 1 + 1 + 1); // the loss, one token, one label
  CHECK(address(0) == 0);            // a written
  CHECK(address(2) == 4);            // b written
  CHECK(address(4) == 0);            // c written
  CHECK(address(5) == 4);            // d written
  CHECK(storage.size == storage.arena + 8);
}

TEST_CASE("a tensor beyond its buffer is refused") {
  StageWriter writer;
  TensorId const a = writer.buffer(4, true);
  writer.stage[a].offset = 1;
  writer.op(OpKind::zero_fill, Stream::compute, {}, {a});
  CHECK(contains(error_of([&] { lay_out_all(writer.finish()); }), "exceeds its buffer"));
}

TEST_CASE("orders keep streams, waits and host syncs, and nothing else") {
  StageWriter writer;
  TensorId const a = writer.buffer(1, true);
  auto add = [&](Stream stream, std::vector<OpId> waits = {}) {
    return writer.op(OpKind::zero_fill, stream, {}, {a}, std::move(waits));
  };
  OpId const first = add(Stream::compute);
  add(Stream::tp, {first}); // after the first
  add(Stream::dp);          // any time
  add(Stream::compute);     // after the first, by its stream
  Program const& program = writer.finish();
  std::set<std::vector<std::size_t>> orders;
  for (std::uint64_t seed = 0; seed < 200; ++seed)
    orders.insert(run_order(program, {.kind = Order::Kind::random, .seed = seed}));
  // 4! orders; 0 before 1 and before 3 leaves a third of them.
  CHECK(orders.size() == 8);
  CHECK(run_order(program, {}) == std::vector<std::size_t>{0, 1, 2, 3});
  CHECK(run_order(program, {.kind = Order::Kind::latest_first}) == std::vector<std::size_t>{2, 0, 3, 1});
  CHECK(run_order(program, {.kind = Order::Kind::delayed, .stream = Stream::compute}).front() == 2);

  // The host issues nothing behind the third before that has ended: 0 and 2 in any order, 1 after 0, 3 after 0 and 2.
  std::get<Op>(writer.program.stages[0].elements[2]).host_sync = true;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<std::size_t> const ran = run_order(program, {.kind = Order::Kind::random, .seed = seed});
    CHECK(std::find(ran.begin(), ran.end(), 2) < std::find(ran.begin(), ran.end(), 3));
  }
}

TEST_CASE("collectives are one node for all members, and a member that never comes is an error") {
  Plan plan;
  plan.dp = 2;
  plan.pp = 2;
  StageWriter writer(plan);
  TensorId const a = writer.buffer(1, true);
  writer.op(OpKind::zero_fill, Stream::compute, {}, {a});
  writer.op(OpKind::all_reduce, Stream::dp, {a}, {a});
  std::get<Op>(writer.stage.elements[1]).group = {Axis::dp, false};
  Program const& program = writer.finish();
  CHECK(run_order(program, {}).size() == 4 + 2); // one fill a rank, one all-reduce a stage
  // Over dp and pp the whole world meets; without stage 1 nobody can start.
  for (StageProgram& stage : writer.program.stages)
    std::get<Op>(stage.elements[1]).group = {{Axis::dp, Axis::pp}, false};
  CHECK(run_order(program, {}).size() == 4 + 1);
  writer.program.stages[1].elements.pop_back();
  CHECK(contains(error_of([&] { run_order(program, {}); }), "stuck at 'op 1' (rank 0, stream dp, micro-batch 0)"));
}

TEST_CASE("a receive takes what was sent, in order; a lost send is an error") {
  Plan plan;
  plan.pp = 2;
  StageWriter writer(plan);
  TensorId const a = writer.buffer(1, true);
  for (int i = 0; i < 2; ++i) {
    writer.op(OpKind::send, Stream::send_activation, {a}, {});
    std::get<Op>(writer.stage.elements.back()).channel = {Channel::What::activation, Stage(0), Stage(1)};
  }
  Program const& program = writer.finish();
  for (Element& element : writer.program.stages[1].elements) {
    Op& op = std::get<Op>(element);
    op.kind = OpKind::receive;
    op.stream = Stream::receive_activation;
    std::swap(op.reads, op.writes);
  }
  CHECK(run_order(program, {}).size() == 2);
  writer.program.stages[0].elements.pop_back();
  CHECK(contains(error_of([&] { run_order(program, {}); }), "stuck at"));
}

TEST_CASE("every plan sees the same global batch") {
  // dp 2, micro-batches of 2, global batch 8: m = 2; dp index 1, micro-batch 1, row 1 holds (1 * 2 + 1) * 2 + 1 = 7.
  Plan plan = one_device();
  plan.dp = 2;
  plan.micro_batch = 2;
  std::set<std::int64_t> sequences;
  for (int dp_index : {0, 1})
    for (std::int64_t micro_batch : {0, 1})
      for (std::int64_t row : {0, 1})
        sequences.insert(global_sequence(plan, dp_index, micro_batch, row));
  CHECK(global_sequence(plan, 1, 1, 1) == 7);
  CHECK(sequences == std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  // Different data for different sequences, steps and seeds.
  auto row = [](std::uint64_t seed, int step, std::int64_t sequence) {
    std::vector<std::int64_t> ids;
    for (std::int64_t position = 0; position < 8; ++position)
      ids.push_back(token_id(seed, step, sequence, position, 32));
    return ids;
  };
  std::set<std::vector<std::int64_t>> const rows{row(1, 1, 0), row(1, 1, 1), row(1, 2, 0), row(2, 1, 0)};
  CHECK(rows.size() == 4);
}

TEST_CASE("shards of a parameter are parts of the same whole") {
  Parameter whole{"w", {2, 4, 3}, {2, 4, 3}, {}, {}, false};
  Parameter half = whole;
  half.shape = {2, 2, 3};
  half.placement[Axis::tp] = sharded(1);
  std::vector<double> const full = initial_shard(1, whole, 5, false, 0);
  std::vector<double> const right = initial_shard(1, half, 5, false, 1);
  // Element (1, 0, 2) of the right half is (1, 2, 2) of the whole.
  CHECK(right[1 * 6 + 0 * 3 + 2] == full[1 * 12 + 2 * 3 + 2]);
  CHECK(initial_shard(1, whole, 6, false, 0) != full); // another layer
  Parameter tied = whole;
  tied.tied = true;
  CHECK(initial_shard(1, tied, 0, false, 0) == initial_shard(1, tied, 5, false, 0));
}

TEST_CASE("a program without its last all-reduce is found out, as NaN or as another number") {
  Plan plan = one_device();
  plan.tp = 2;
  Program program = compile(small_gpt(2), plan);
  Interpreter<double> whole(program, {});
  whole.step({});
  CHECK(whole.loss() == Approx(std::log(32)).epsilon(0.2)); // an untrained model knows nothing of 32 tokens
  CHECK(whole.replica_difference() == 0);
  for (LayerProgram& layer : program.layer_programs)
    std::erase_if(layer.forward, [](Op const& op) { return op.kind == OpKind::all_reduce; });
  Interpreter<double> broken(program, {});
  broken.step({});
  CHECK(broken.loss() != whole.loss());
}

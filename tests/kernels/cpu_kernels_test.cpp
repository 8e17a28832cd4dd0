// The CPU kernels against the interpreter: every op of compiled programs on random operands, in the program's dtypes.
// The interpreter computes in fp64 on the same (already rounded) inputs.
#include "interpreter/kernels.hpp"
#include "program/amounts.hpp"
#include "program/compile.hpp"
#include "program/quantization.hpp"
#include "tests/catch.hpp"
#include "tests/equivalence/models.hpp"
#include "validate/devices/backend.hpp"
#include "validate/devices/element.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <vector>

using namespace foreplan;

namespace {

// A tensor's memory on the device, and the same values for the interpreter.
struct Values {
  std::vector<std::byte> stored;
  std::vector<double> exact;
};

ElementType type_of(Tensor const& tensor) { return element_type(Storage::as_planned, tensor.dtype); }

bool stays_positive(Op const& op, std::size_t read) { // v of Adam, sums of exponentials
  return (op.kind == OpKind::adam && (read == 1 || read == 4)) ||
         ((op.kind == OpKind::loss_forward && read == 0) || (op.kind == OpKind::loss_backward && read == 3));
}

Values random_values(Tensor const& tensor, bool positive, std::int64_t vocabulary, std::mt19937& engine) {
  std::uniform_real_distribution<double> uniform(positive ? 0.5 : -1, 1);
  auto const count = static_cast<std::size_t>(tensor.elements());
  Values values{std::vector<std::byte>(count * static_cast<std::size_t>(size_of(type_of(tensor)))),
                std::vector<double>(count)};
  for (std::size_t i = 0; i < count; ++i) {
    double value = uniform(engine);
    if (tensor.dtype == DType::int32)
      value = static_cast<double>(engine() % static_cast<unsigned>(vocabulary));
    if (tensor.dtype == DType::uint8)
      value = static_cast<double>(engine() % 2);
    store(values.stored.data(), type_of(tensor), static_cast<std::int64_t>(i), value);
    values.exact[i] = load(values.stored.data(), type_of(tensor), static_cast<std::int64_t>(i));
  }
  return values;
}

// Largest difference of a written tensor, relative to its largest value.
double difference(Tensor const& tensor, Values const& values) {
  double largest = 0;
  double scale = 1e-30;
  for (std::size_t i = 0; i < values.exact.size(); ++i) {
    double const got = load(values.stored.data(), type_of(tensor), static_cast<std::int64_t>(i));
    double const error = std::abs(got - values.exact[i]);
    largest = error <= largest ? largest : error; // a NaN is larger
    scale = std::max(scale, std::abs(values.exact[i]));
  }
  return largest / scale;
}

// Of codes, those that are not the same: what lies halfway between two in fp64 may go either way in fp32. None may be further
// off than one: 1.
double share_of_other_codes(int bits, Values const& values) {
  double others = 0;
  for (std::size_t i = 0; i < values.exact.size(); ++i) {
    auto const got = std::to_integer<std::uint8_t>(values.stored[i]);
    auto const wanted = static_cast<std::uint8_t>(values.exact[i]);
    int const low = bits == 8 ? static_cast<std::int8_t>(got) - static_cast<std::int8_t>(wanted)
                              : low_int4(got) - low_int4(wanted);
    int const high = bits == 8 ? 0 : high_int4(got) - high_int4(wanted);
    if (std::abs(low) > 1 || std::abs(high) > 1)
      return 1;
    others += low != 0 || high != 0 ? 1 : 0;
  }
  return others / static_cast<double>(values.exact.size());
}

// Rounding of a result, and of the probabilities that a tile of attention multiplies by.
double tolerance(DType parameter_dtype) {
  switch (parameter_dtype) {
    case DType::bf16: return 3 * 0x1p-8;
    case DType::fp16: return 3 * 0x1p-11;
    default: return 2e-5;
  }
}

template <class Owner>
void check_op(Owner const& owner, Op const& op, Plan const& plan, std::int64_t vocabulary, int threads) {
  std::mt19937 engine(static_cast<unsigned>(op.kind));
  std::map<std::int32_t, Values> memory; // by tensor
  for (std::size_t i = 0; i < op.reads.size(); ++i)
    memory.try_emplace(op.reads[i].value(),
                       random_values(owner[op.reads[i]], stays_positive(op, i), vocabulary, engine));
  for (TensorId id : op.writes)
    memory.try_emplace(id.value(), random_values(owner[id], false, vocabulary, engine));

  std::vector<Operand> reads, writes;
  std::vector<View<double>> exact_reads, exact_writes;
  for (TensorId id : op.reads) {
    reads.push_back({memory[id.value()].stored.data(), &owner[id]});
    exact_reads.push_back({memory[id.value()].exact.data(), &owner[id]});
  }
  for (TensorId id : op.writes) {
    writes.push_back({memory[id.value()].stored.data(), &owner[id]});
    exact_writes.push_back({memory[id.value()].exact.data(), &owner[id]});
  }
  KernelContext const context{
      .coordinate = {.tp = 1, .dp = 0, .pp = 0}, .gradient_clip = 0.5, .training = {}, .step = 3};
  run_kernel(op, reads, writes, context, threads);
  run_kernel<double>(op, exact_reads, exact_writes, context);
  for (TensorId id : op.writes) {
    INFO(to_string(op.kind) << ", " << op.name << ", writes " << owner[id].name << ", " << describe(plan) << ", "
                            << to_string(plan.parameter_dtype) << ", threads " << threads);
    if (op.bits > 0 && owner[id].dtype == DType::uint8) {
      CHECK(share_of_other_codes(op.bits, memory[id.value()]) <= 0.01);
      continue;
    }
    CHECK(difference(owner[id], memory[id.value()]) <= tolerance(plan.parameter_dtype));
  }
}

void check_plan(Model const& model, Plan const& plan, int threads, std::set<OpKind>& seen) {
  Program const program = compile(model, plan);
  auto const check = [&](auto const& owner, Op const& op) {
    if (is_communication(op.kind) || op.kind == OpKind::wait)
      return;
    seen.insert(op.kind);
    check_op(owner, op, plan, model.vocabulary, threads);
  };
  for (LayerProgram const& layer : program.layer_programs)
    for (std::vector<Op> const* ops : {&layer.forward, &layer.backward})
      for (Op const& op : *ops)
        check(layer, op);
  StageProgram const& stage = program.stages.back();
  for (Element const& element : stage.elements)
    if (Op const* op = std::get_if<Op>(&element))
      check(stage, *op);
}

// Sequences that are no multiple of a tile and longer than one; heads and widths that fill no vector register.
Model odd_gpt() {
  Model model = small_gpt(1);
  model.hidden = 36;
  model.heads = model.kv_heads = 2;
  model.head_size = 20;
  model.ffn = 1100;
  model.vocabulary = 1090;
  model.max_positions = 160;
  model.dropout = true;
  return model;
}

Model odd_llama() {
  Model model = small_llama(1);
  model.hidden = 48;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_size = 24;
  model.ffn = 68;
  model.max_positions = 160;
  return model;
}

Plan two_sequences(DType dtype) {
  Plan plan;
  plan.tp = 2;
  plan.sequence_length = 150;
  plan.global_batch = plan.micro_batch = 2;
  plan.parameter_dtype = dtype;
  return plan;
}

} // namespace

TEST_CASE("every op kind computes on the CPU what it does in the interpreter", "[devices]") {
  std::set<OpKind> seen;
  for (DType dtype : {DType::fp32, DType::bf16, DType::fp16})
    for (int threads : {1, 2}) {
      if (dtype == DType::fp16 && threads == 1)
        continue;
      Plan plan = two_sequences(dtype);
      check_plan(odd_gpt(), plan, threads, seen);
      check_plan(odd_llama(), plan, threads, seen);
      plan.attention = Attention::unfused;
      plan.recompute = Recompute::full;
      plan.sequence_parallel = true;
      plan.execution.fused_accumulation = false;
      plan.offload.optimizer = MemoryTier::host;
      if (dtype == DType::bf16)
        plan.gradient_dtype = DType::bf16;
      check_plan(odd_gpt(), plan, threads, seen);
      check_plan(odd_llama(), plan, threads, seen);
    }
  for (ContextParallel type : {ContextParallel::ring, ContextParallel::all_gather, ContextParallel::all_to_all}) {
    Plan plan = two_sequences(DType::bf16);
    plan.sequence_length = 152;
    plan.tp = 1;
    plan.cp = 2;
    plan.cp_type = type;
    check_plan(odd_llama(), plan, 2, seen);
  }
  Plan zero_pp = two_sequences(DType::bf16);
  zero_pp.tp = 1;
  zero_pp.dp = 4;
  zero_pp.global_batch = 4 * zero_pp.micro_batch;
  zero_pp.zero_stage = 3;
  zero_pp.sharding.inner_group = 2;
  zero_pp.sharding.secondary_shard = true;
  zero_pp.sharding.weight_bits = 8;
  zero_pp.sharding.gradient_bits = 4;
  check_plan(odd_llama(), zero_pp, 2, seen);
  for (int kind = 0; kind < static_cast<int>(OpKind::wait); ++kind) {
    INFO(to_string(static_cast<OpKind>(kind)));
    CHECK((is_communication(static_cast<OpKind>(kind)) || seen.contains(static_cast<OpKind>(kind))));
  }
}

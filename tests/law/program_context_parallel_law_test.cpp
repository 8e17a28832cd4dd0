// Context parallelism: bytes inside the layers and balance of the causal mask (notes: algorithms.md 9.1).
#include "model/read_model.hpp"
#include "program/amounts.hpp"
#include "program/compile.hpp"
#include "program/token_layout.hpp"
#include "tests/catch.hpp"

#include <vector>

using namespace foreplan;

namespace {

// Llama-3-8B: g = 8 KV heads of d = 128, a = 32 heads; s = 131072, b = 1.
constexpr std::int64_t s = 131072;

Program program_of(ContextParallel type, int cp, int tp = 1, std::int64_t length = s) {
  Model model = read_model(std::string(FOREPLAN_ROOT) + "/models/llama-3.1-8b.json");
  model.layers = 1;
  Plan plan;
  plan.tp = tp;
  plan.cp = cp;
  plan.cp_type = type;
  plan.sequence_length = length;
  plan.global_batch = 1;
  return compile(model, plan);
}

LayerProgram const& block_of(Program const& program) {
  return program.layer_programs[static_cast<std::size_t>(program.stages[0].layers[1].program)];
}

// Sent by a rank over the cp group.
double sent(Program const& program, SlotKind kind) {
  LayerProgram const& block = block_of(program);
  double bytes = 0;
  for (Op const& op : ops_of(block, kind))
    if (op.stream == Stream::cp)
      bytes += wire_bytes(op, operands_of(block, op), program.plan.cp).value();
  return bytes;
}

double attention_flops(Program const& program, SlotKind kind) {
  LayerProgram const& block = block_of(program);
  double flops = 0;
  for (Op const& op : ops_of(block, kind))
    if (op.kind == OpKind::attention_forward || op.kind == OpKind::attention_backward)
      flops += amount_of(op, operands_of(block, op)).flops.value();
  return flops;
}

} // namespace

// A K, V block is 2 g d 2 bytes s/cp = 67.1 MB; cp - 1 = 7 of them are 469.8 MB forward. Backward: K, V again and their
// gradients. With tp each rank has g / tp KV heads.
TEST_CASE("ring and all-gather: (cp - 1) 2 g d 2 s / cp bytes forward, twice that backward, 1 / tp of it with tp") {
  for (ContextParallel type : {ContextParallel::ring, ContextParallel::all_gather})
    for (int tp : {1, 8}) {
      Program const program = program_of(type, 8, tp);
      CHECK(sent(program, SlotKind::forward) == Approx(469.762e6 / tp).epsilon(1e-5));
      CHECK(sent(program, SlotKind::backward) == Approx(2 * 469.762e6 / tp).epsilon(1e-5));
    }
}

// q, k, v and the context: (cp - 1)/cp of s/cp (2 a d + 2 g d) 2 bytes; the gradients come back the same way.
TEST_CASE("all-to-all: (cp - 1) / cp s / cp (2 a d + 2 g d) 2 bytes, forward and backward") {
  Program const program = program_of(ContextParallel::all_to_all, 8);
  double const expected = 7.0 / 8 * (s / 8.0) * (2 * 32 * 128 + 2 * 8 * 128) * 2;
  CHECK(sent(program, SlotKind::forward) == Approx(expected));
  CHECK(sent(program, SlotKind::backward) == Approx(expected));
}

// 16 ranks share 8 KV heads: each gets 2 of a head's 4 queries, and all of its key and value: cp (2 + 2) d a token instead of
// g (4 + 2) d. The output has no copies.
TEST_CASE("all-to-all with fewer KV heads than ranks sends them to several") {
  Program const program = program_of(ContextParallel::all_to_all, 16);
  double const qkv = 15.0 / 16 * (s / 16.0) * 16 * (2 + 2) * 128 * 2, o = 15.0 / 16 * (s / 16.0) * 32 * 128 * 2;
  CHECK(sent(program, SlotKind::forward) == Approx(qkv + o));
  CHECK(sent(program, SlotKind::backward) == Approx(qkv + o));
  CHECK(16 * attention_flops(program, SlotKind::forward) ==
        Approx(attention_flops(program_of(ContextParallel::ring, 1), SlotKind::forward)));
}

// Sequence and ranks grown together: what a rank sends, less its own share, is constant with all-to-all; with a ring it
// grows as the keys of all ranks do.
TEST_CASE("all-to-all sends as much when sequence and ranks grow together") {
  auto whole = [](ContextParallel type, int cp) {
    return sent(program_of(type, cp, 1, 16384 * cp), SlotKind::forward) * cp / (cp - 1);
  };
  CHECK(whole(ContextParallel::all_to_all, 2) == Approx(whole(ContextParallel::all_to_all, 8)));
  CHECK(4 * whole(ContextParallel::ring, 2) == Approx(whole(ContextParallel::ring, 8)));
}

// s / cp queries see s / 2 keys on average on every rank: 1 / cp of what one device computes, whatever the type.
TEST_CASE("every rank computes 1 / cp of the causal attention") {
  Program const alone = program_of(ContextParallel::ring, 1);
  for (ContextParallel type : {ContextParallel::ring, ContextParallel::all_gather, ContextParallel::all_to_all})
    for (SlotKind kind : {SlotKind::forward, SlotKind::backward})
      CHECK(8 * attention_flops(program_of(type, 8), kind) == Approx(attention_flops(alone, kind)));
}

// Chunk k of 2 cp sees k whole chunks and half of itself. Rank i: (i + 1/2) + (2 cp - 1 - i + 1/2) = 2 cp chunk pairs of
// 2 cp^2 in all. The last of cp contiguous slices would have (2 cp - 2 + 1/2) + (2 cp - 1 + 1/2) = 4 cp - 2 of them:
// (2 cp - 1) / cp times the mean, 1.875 for cp = 8.
TEST_CASE("balanced chunks: every rank sees 2 cp chunk pairs") {
  constexpr int cp = 8;
  constexpr std::int64_t chunk = 16, length = 2 * cp * chunk;
  for (int rank = 0; rank < cp; ++rank) {
    double pairs = 0; // a query sees its own key half, so that a chunk sees half of itself
    for (std::int64_t row = 0; row < length / cp; ++row)
      pairs += static_cast<double>(token_place(row, length, cp, rank).position) + 0.5;
    CHECK(pairs / (chunk * chunk) == Approx(2 * cp));
  }
  double last = 0;
  for (std::int64_t position = length - length / cp; position < length; ++position)
    last += static_cast<double>(position) + 0.5;
  CHECK(last / (chunk * chunk) / (2 * cp) == Approx(1.875));
}

TEST_CASE("the ranks of a context-parallel group hold every token once") {
  for (int cp : {1, 2, 4}) {
    std::vector<int> seen(2 * 16, 0);
    for (int rank = 0; rank < cp; ++rank)
      for (std::int64_t row = 0; row < 2 * 16 / cp; ++row) {
        TokenPlace const place = token_place(row, 16, cp, rank);
        ++seen[static_cast<std::size_t>(place.sequence * 16 + place.position)];
      }
    CHECK(seen == std::vector<int>(2 * 16, 1));
  }
}

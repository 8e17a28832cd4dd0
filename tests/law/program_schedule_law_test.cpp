// Laws of the pipeline schedules on programs: micro-batches in flight (notes: algorithms.md 7), bytes between stages.
#include "program/compile.hpp"
#include "tests/catch.hpp"
#include "tests/law/program_counts.hpp"

#include <algorithm>
#include <set>

using namespace foreplan;

namespace {

Model model_of(int layers) {
  Model model;
  model.layers = layers;
  model.hidden = 16;
  model.heads = model.kv_heads = 4;
  model.head_size = 4;
  model.ffn = 24;
  model.vocabulary = 32;
  model.max_positions = 8;
  return model;
}

Plan plan_of(Schedule schedule, int pp, int chunks, std::int64_t m) {
  Plan plan;
  plan.schedule = schedule;
  plan.pp = pp;
  plan.chunks = chunks;
  plan.p2p = P2p::overlapped;
  plan.sequence_length = 8;
  plan.global_batch = m;
  return plan;
}

// The most (chunk, micro-batch) pairs of a stage that hold activations of a block at once.
std::int64_t most_in_flight(Program const& program, Stage stage_id) {
  StageProgram const& stage = program.stages[stage_id.index()];
  auto chunk_of = [&](int layer) {
    return std::find_if(stage.chunks.begin(), stage.chunks.end(),
                        [&](LayerRange range) { return range.first <= layer && layer < range.last; }) -
           stage.chunks.begin();
  };
  std::size_t most = 0;
  walk(program, stage, [&](Instance const&, Alive const& alive) {
    std::set<std::pair<std::ptrdiff_t, std::int32_t>> in_flight;
    for (auto const& [key, buffer] : alive)
      if (key.space == BufferKey::Space::local && buffer.category == Category::activations)
        in_flight.emplace(chunk_of(key.layer), key.micro_batch);
    most = std::max(most, in_flight.size());
  });
  return static_cast<std::int64_t>(most);
}

} // namespace

// GPipe runs all forwards first: m on every stage.
TEST_CASE("gpipe: m micro-batches in flight on every stage") {
  for (int pp : {2, 4})
    for (std::int64_t m : {1, 2, 4, 8}) {
      Program const program = compile(model_of(4), plan_of(Schedule::gpipe, pp, 1, m));
      for (int i = 0; i < pp; ++i)
        CHECK(most_in_flight(program, Stage(i)) == m);
    }
}

// Stage i warms up with p - 1 - i forwards; the next forward makes p - i, then a backward frees one each time.
TEST_CASE("1f1b: min(p - i, m) micro-batches in flight on stage i") {
  for (int pp : {1, 2, 3, 4})
    for (std::int64_t m : {1, 2, 3, 4, 8}) {
      Program const program = compile(model_of(6), plan_of(Schedule::one_f_one_b, pp, 1, m));
      for (int i = 0; i < pp; ++i)
        CHECK(most_in_flight(program, Stage(i)) == std::min<std::int64_t>(pp - i, m));
    }
}

// Warm-up 2 (p - 1 - i) + (v - 1) p forwards of a chunk, and one more before the first backward.
TEST_CASE("interleaved: min(m v, 2 (p - 1 - i) + (v - 1) p + 1) chunks in flight on stage i") {
  for (int pp : {2, 3, 4})
    for (int chunks : {2, 3})
      for (std::int64_t groups : {1, 2, 4}) {
        std::int64_t const m = groups * pp;
        Program const program = compile(model_of(pp * chunks), plan_of(Schedule::interleaved, pp, chunks, m));
        for (int i = 0; i < pp; ++i)
          CHECK(most_in_flight(program, Stage(i)) ==
                std::min<std::int64_t>(m * chunks, 2 * (pp - 1 - i) + (chunks - 1) * pp + 1));
      }
}

// Groups of g micro-batches: warm-up 2 (p - 1 - i) + (v - 1) g. Values of the notes (algorithms.md 11).
TEST_CASE("interleaved in groups of g: min(m v, 2 (p - 1 - i) + (v - 1) g + 1) chunks in flight on stage i") {
  for (auto const& [m, g] : {std::pair{10, 5}, std::pair{12, 6}, std::pair{14, 5}}) {
    Plan plan = plan_of(Schedule::interleaved, 4, 2, m);
    plan.micro_batch_group = g;
    Program const program = compile(model_of(8), plan);
    for (int i = 0; i < 4; ++i)
      CHECK(most_in_flight(program, Stage(i)) == 2 * (3 - i) + g + 1);
  }
}

// Counted until W. ZB-H1: p - i not yet through B, as 1F1B, and i that wait for W. ZB-H2: 2 (p - i) - 1 and 2 i.
TEST_CASE("zb-h1: min(p, m), zb-h2: min(2 p - 1, m) micro-batches in flight on every stage") {
  for (int pp : {2, 3, 4})
    for (std::int64_t m : {1, 2, 4, 8, 12}) {
      Program const h1 = compile(model_of(6), plan_of(Schedule::zb_h1, pp, 1, m));
      Program const h2 = compile(model_of(6), plan_of(Schedule::zb_h2, pp, 1, m));
      for (int i = 0; i < pp; ++i) {
        CHECK(most_in_flight(h1, Stage(i)) == std::min<std::int64_t>(pp, m));
        CHECK(most_in_flight(h2, Stage(i)) == std::min<std::int64_t>(2 * pp - 1, m));
      }
    }
}

// Counted until W, in chunks: p micro-batches, (p + 2) / 2, (p + 4) / 3; DualPipeV: p parts + 1 = 2 pp + 1.
TEST_CASE("V-shaped: chunks in flight") {
  for (int pp : {2, 3, 4, 6}) {
    Model const model = model_of(2 * pp);
    std::int64_t const m = 4 * pp;
    for (int i = 0; i < pp; ++i) {
      INFO("pp " << pp << ", stage " << i);
      CHECK(most_in_flight(compile(model, plan_of(Schedule::zb_v, pp, 2, m)), Stage(i)) == 2 * pp);
      CHECK(most_in_flight(compile(model, plan_of(Schedule::v_half, pp, 2, m)), Stage(i)) == 2 * ((pp + 2) / 2));
      CHECK(most_in_flight(compile(model, plan_of(Schedule::v_min, pp, 2, m)), Stage(i)) == 2 * ((pp + 4) / 3));
      CHECK(most_in_flight(compile(model, plan_of(Schedule::dualpipe_v, pp, 2, m)), Stage(i)) == 2 * pp + 1);
    }
  }
}

// A boundary of one micro-batch is s b h elements of two bytes; with sequence parallelism each of the t ranks sends its
// tokens. A stage sends m activations a chunk, but for the model's last chunk, and as many gradients, but for its first.
TEST_CASE("between stages: 2 s b h / t bytes a boundary and micro-batch each way") {
  for (bool const sequence_parallel : {false, true})
    for (int chunks : {1, 2}) {
      Plan plan = plan_of(chunks > 1 ? Schedule::interleaved : Schedule::one_f_one_b, 2, chunks, 4);
      plan.tp = 2;
      plan.sequence_parallel = sequence_parallel;
      Model const model = model_of(4);
      Program const program = compile(model, plan);
      double const boundary = 2.0 * 8 * 1 * 16 / (sequence_parallel ? 2 : 1);
      for (int i = 0; i < plan.pp; ++i) {
        double activations = 0, gradients = 0, received = 0;
        StageProgram const& stage = program.stages[static_cast<std::size_t>(i)];
        for (Element const& element : stage.elements) {
          Op const* op = std::get_if<Op>(&element);
          if (op != nullptr && op->kind == OpKind::send)
            (op->channel.what == Channel::What::activation ? activations : gradients) += bytes_of(stage[op->reads[0]]);
          if (op != nullptr && op->kind == OpKind::receive)
            received += bytes_of(stage[op->writes[0]]);
        }
        bool const is_last = i == plan.pp - 1, is_first = i == 0;
        CHECK(activations == 4 * boundary * (chunks - (is_last ? 1 : 0)));
        CHECK(gradients == 4 * boundary * (chunks - (is_first ? 1 : 0)));
        CHECK(received ==
              4 * boundary * (2 * chunks - 1)); // all but the first chunk's activations, or the last's gradients
      }
    }
}

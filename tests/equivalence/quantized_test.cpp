// Codes on the wire (ZeRO++): what comes out lies within the quantizer's bound of what went in, and a step is the same
// in every legal order.
#include "interpreter/difference.hpp"
#include "program/compile.hpp"
#include "tests/catch.hpp"
#include "tests/equivalence/models.hpp"
#include "tests/equivalence/plans.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <map>
#include <random>

using namespace foreplan;

namespace {

constexpr int inner = 2, outer = 2;

Plan zero_pp(int weight_bits, int gradient_bits) {
  Plan plan = one_device();
  plan.dp = inner * outer;
  plan.zero_stage = 3;
  plan.micro_batch = 1;
  plan.sharding.inner_group = inner;
  plan.sharding.weight_bits = weight_bits;
  plan.sharding.gradient_bits = gradient_bits;
  return plan;
}

// The stage's buffers on every rank, each of its own; runs ops on all of them, one after the other.
struct Ranks {
  Program const& program;
  std::vector<std::vector<std::vector<double>>> memory{}; // by rank and buffer

  explicit Ranks(Program const& from) : program(from), memory(static_cast<std::size_t>(from.plan.world_size())) {
    for (auto& buffers : memory)
      for (Buffer const& buffer : stage().buffers)
        buffers.emplace_back(static_cast<std::size_t>(buffer.elements), std::nan(""));
  }

  [[nodiscard]] StageProgram const& stage() const { return program.stages[0]; }

  double* at(Rank rank, Tensor const& tensor) {
    return memory[rank.index()][static_cast<std::size_t>(tensor.buffer.index)].data() +
           tensor.offset_on(coordinate_of(program.plan, rank));
  }

  std::vector<View<double>> views(std::vector<Rank> const& ranks, std::vector<TensorId> const& ids) {
    std::vector<View<double>> result;
    for (Rank rank : ranks)
      for (TensorId id : ids)
        result.push_back({at(rank, stage()[id]), &stage()[id]});
    return result;
  }

  void run(Op const& op) {
    std::vector<double> scratch;
    for (int r = 0; r < program.plan.world_size(); ++r) {
      std::vector<Rank> const members = is_collective(op.kind) ? members_of(program.plan, Rank(r), op.group)
                                                               : std::vector<Rank>{Rank(r)};
      if (members[0] != Rank(r))
        continue;
      std::vector<View<double>> const reads = views(members, op.reads), writes = views(members, op.writes);
      if (is_collective(op.kind))
        run_collective<double>(op, reads, writes, scratch);
      else
        run_kernel<double>(op, reads, writes, {});
    }
  }

  // The ops from the first that reads this buffer, up to the first that decodes. Returns the last.
  Op const& run_until_decoded(BufferId from) {
    bool runs = false;
    for (Element const& element : stage().elements) {
      Op const* op = std::get_if<Op>(&element);
      if (op == nullptr || op->stream != Stream::dp)
        continue;
      runs = runs || (op->kind == OpKind::quantize && stage()[op->reads[0]].buffer.index == from.value());
      if (!runs)
        continue;
      run(*op);
      if (op->kind == OpKind::dequantize)
        return *op;
    }
    throw std::logic_error("nothing is decoded");
  }
};

double largest(double const* x, std::int64_t count) {
  double result = 0;
  for (std::int64_t i = 0; i < count; ++i)
    result = std::max(result, std::abs(x[i]));
  return result;
}

double half_step(double largest, int bits) { return largest / ((1 << (bits - 1)) - 1) / 2; }

double largest_difference_between_orders(Program const& program, TrainingParameters const& training, Reuse reuse) {
  Interpreter<double> interpreter(program, training, reuse);
  std::vector<Reference> results;
  double largest = 0;
  for (Order const& order : interpreter.adversarial_orders(6)) {
    interpreter.reset();
    interpreter.step(order);
    results.push_back({interpreter.loss(), interpreter.weights()});
    largest = std::max({largest, relative_difference(results.back(), results[0]), interpreter.replica_difference()});
  }
  return largest;
}

void fill(std::vector<double>& values, std::mt19937& random) {
  std::normal_distribution<double> normal;
  for (double& value : values)
    value = normal(random);
}

} // namespace

// Every code is within half a step of its group, and a step is the group's largest element / (2^(bits - 1) - 1). Here a
// shard is one group.
TEST_CASE("qwZ: gathered parameters are within half a step of the shards", "[quantized]") {
  for (int bits : {8, 4}) {
    Program const program = compile(small_llama(2), zero_pp(bits, 0));
    std::mt19937 random(1);
    for (Bucket const& bucket : program.stages[0].buckets) {
      Ranks ranks(program);
      for (auto& buffers : ranks.memory)
        fill(buffers[bucket.shard_parameters.index()], random);
      ranks.run_until_decoded(bucket.shard_parameters);
      std::int64_t const size = bucket.shard_elements;
      for (auto const& buffers : ranks.memory)
        for (int r = 0; r < program.plan.world_size(); ++r) {
          double const* shard = ranks.memory[static_cast<std::size_t>(r)][bucket.shard_parameters.index()].data();
          double const* gathered = buffers[bucket.parameters.index()].data() + r * size;
          double worst = 0;
          for (std::int64_t i = 0; i < size; ++i)
            worst = std::max(worst, std::abs(gathered[i] - shard[i]));
          double const bound = half_step(largest(shard, size), bits);
          CHECK(worst <= bound * (1 + 1e-12));
          CHECK(worst > bound / 4); // codes they were
        }
    }
  }
}

// Into a rank's shard go, of each inner group q, the terms of its members t, each off by at most half a step of its
// largest element in that shard, and their sum quantized again, off by half a step of the largest that this sum can be.
// The second hop adds up the groups:  sum_q (sum_t step_qt / 2 + step_q / 2).
TEST_CASE("qgZ: reduced gradients lie where the primary shards do, within the bound of two hops", "[quantized]") {
  for (int bits : {8, 4}) {
    Program const program = compile(small_llama(2), zero_pp(0, bits));
    std::mt19937 random(2);
    double closest = 0;
    for (Bucket const& bucket : program.stages[0].buckets) {
      if (!bucket.quantized_gradients)
        continue;
      Ranks ranks(program);
      for (auto& buffers : ranks.memory)
        fill(buffers[bucket.gradients.index()], random);
      Op const& last = ranks.run_until_decoded(bucket.gradients);
      std::int64_t const size = bucket.shard_elements;
      for (int r = 0; r < program.plan.world_size(); ++r) {
        std::vector<double> exact(static_cast<std::size_t>(size), 0);
        double bound = 0;
        for (int q = 0; q < outer; ++q) {
          std::vector<double> sum(static_cast<std::size_t>(size), 0);
          double steps = 0;
          for (int t = 0; t < inner; ++t) { // the inner index varies fastest
            double const* term =
                ranks.memory[static_cast<std::size_t>(q * inner + t)][bucket.gradients.index()].data() + r * size;
            steps += half_step(largest(term, size), bits);
            for (std::int64_t i = 0; i < size; ++i)
              sum[static_cast<std::size_t>(i)] += term[i];
          }
          bound += steps + half_step(largest(sum.data(), size) + steps, bits);
          std::transform(exact.begin(), exact.end(), sum.begin(), exact.begin(), std::plus<>());
        }
        double const* reduced = ranks.at(Rank(r), program.stages[0][last.writes[0]]);
        double worst = 0;
        for (std::int64_t i = 0; i < size; ++i)
          worst = std::max(worst, std::abs(reduced[i] - exact[static_cast<std::size_t>(i)]));
        CHECK(worst <= bound * (1 + 1e-12));
        CHECK(worst > bound / 10);
        closest = std::max(closest, worst / bound);
      }
    }
    std::cout << "qgZ, " << bits << " bits: at most " << closest << " of the bound\n";
  }
}

// As qgZ within one group: a rank's part of the sum is off by half a step of each term's largest element there; where
// the whole is needed, every part is quantized once more.
TEST_CASE("sums over tp: within the bound of one quantization, or of two where all ranks need the whole",
          "[quantized]") {
  for (bool sequence_parallel : {false, true})
    for (int bits : {8, 4}) {
      Plan plan = one_device();
      plan.tp = 2;
      plan.tp_bits = bits;
      plan.sequence_parallel = sequence_parallel;
      Program const program = compile(small_llama(2), plan);
      LayerProgram const& block = program.layer_programs[1];
      auto const first = std::find_if(block.forward.begin(), block.forward.end(),
                                      [](Op const& op) { return op.kind == OpKind::quantize; });
      auto const last = std::find_if(first, block.forward.end(),
                                     [](Op const& op) { return op.kind == OpKind::dequantize; });
      std::mt19937 random(3);
      std::array<std::map<BufferRef, std::vector<double>>, 2> memory; // by rank
      for (auto& buffers : memory) {
        for (auto op = first; op <= last; ++op)
          for (auto const* ids : {&op->reads, &op->writes})
            for (TensorId id : *ids)
              buffers[block[id].buffer].resize(static_cast<std::size_t>(block[id].elements()));
        fill(buffers[block[first->reads[0]].buffer], random);
      }
      auto const terms = std::array{memory[0][block[first->reads[0]].buffer], memory[1][block[first->reads[0]].buffer]};
      auto view = [&](std::size_t rank, TensorId id) {
        return View<double>{memory[rank][block[id].buffer].data(), &block[id]};
      };
      for (auto op = first; op <= last; ++op) {
        std::vector<double> scratch;
        if (is_collective(op->kind))
          run_collective<double>(*op, std::array{view(0, op->reads[0]), view(1, op->reads[0])},
                                 std::array{view(0, op->writes[0]), view(1, op->writes[0])}, scratch);
        for (std::size_t rank = 0; rank < 2 && !is_collective(op->kind); ++rank) {
          std::vector<View<double>> reads, writes;
          for (TensorId id : op->reads)
            reads.push_back(view(rank, id));
          for (TensorId id : op->writes)
            writes.push_back(view(rank, id));
          run_kernel<double>(*op, reads, writes, {});
        }
      }
      auto const part = static_cast<std::int64_t>(terms[0].size()) / 2;
      for (std::int64_t p = 0; p < 2; ++p) {
        double bound = 0, worst = 0;
        std::vector<double> exact(static_cast<std::size_t>(part), 0);
        for (std::vector<double> const& term : terms) {
          bound += half_step(largest(term.data() + p * part, part), bits);
          for (std::int64_t i = 0; i < part; ++i)
            exact[static_cast<std::size_t>(i)] += term[static_cast<std::size_t>(p * part + i)];
        }
        if (!sequence_parallel)
          bound += half_step(largest(exact.data(), part) + bound, bits);
        double const* result = view(static_cast<std::size_t>(p), last->writes[0]).data +
                               (sequence_parallel ? 0 : p * part);
        for (std::int64_t i = 0; i < part; ++i)
          worst = std::max(worst, std::abs(result[i] - exact[static_cast<std::size_t>(i)]));
        CHECK(worst <= bound * (1 + 1e-12));
        CHECK(worst > bound / 10);
      }
    }
}

// Adam's first step moves a weight by no more than the learning rate, whatever the gradient: two runs differ by no more
// than twice that, and if they went in random directions, by the learning rate on average. The first loss knows only of
// codes of weights. Every order of one layout of the memory gives the same result to the last bit (between layouts,
// where products add up in another order, a sum of codes that lies halfway between two may go either way).
TEST_CASE("steps with codes on the wire are the same in every order, and near those without", "[quantized]") {
  TrainingParameters const training{.learning_rate = 1e-3, .epsilon = 1e-4, .seed = 7};
  std::map<std::array<int, 3>, double> means; // by bits
  for (EquivalenceCase const& test : quantized_cases()) {
    INFO(describe(test));
    Program const program = compile(test.model, test.plan);
    Reference const quantized = reference_of(program, training);
    for (Reuse reuse : {Reuse::same_size, Reuse::last_freed})
      CHECK(largest_difference_between_orders(program, training, reuse) == 0);
    Reference const exact = reference_of(compile(test.model, one_device()), training);
    double worst = 0, sum = 0, count = 0;
    for (auto const& [name, weights] : quantized.weights)
      for (std::size_t i = 0; i < weights.size(); ++i) {
        double const difference = std::abs(weights[i] - exact.weights.at(name)[i]);
        worst = std::isnan(difference) ? difference : std::max(worst, difference);
        sum += difference;
        ++count;
      }
    CHECK(worst <= 2 * training.learning_rate);
    CHECK(sum / count < training.learning_rate / 2);
    if (test.plan.sharding.weight_bits == 0 && test.plan.tp_bits == 0)
      CHECK(quantized.loss == Approx(exact.loss).epsilon(1e-10));
    Sharding const& s = test.plan.sharding;
    double& mean = means[{s.weight_bits, s.gradient_bits, test.plan.tp_bits}];
    mean = std::max(mean, sum / count / training.learning_rate);
  }
  for (auto const& [bits, mean] : means)
    std::cout << bits[0] << " bits of weights, " << bits[1] << " of gradients, " << bits[2]
              << " of sums over tp: first step off by " << mean << " of its size on average\n";
}

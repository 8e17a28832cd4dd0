// Every plan is the same training step: three steps of a plan, run in adversarial orders on all its ranks, give the loss
// and the weights of the model trained on one device.
#include "interpreter/difference.hpp"
#include "program/compile.hpp"
#include "tests/catch.hpp"
#include "tests/equivalence/models.hpp"
#include "tests/equivalence/plans.hpp"

#include <cmath>
#include <iostream>
#include <map>
#include <set>

using namespace foreplan;

namespace {

constexpr int steps = 3;

// Adam's epsilon of 1e-4 keeps gradients that are zero but for rounding (the key's bias: softmax does not see it) from
// becoming steps of the size of the learning rate.
TrainingParameters training() { return {.learning_rate = 1e-2, .epsilon = 1e-4, .seed = 7}; }

// What rounding (unit u) can do. A gradient comes out of a chain of about 10 ops a layer, forward and backward, of up to 10
// layers, each with sums of up to 64 terms: to first order its error is sqrt(2 * 10 * 10 * 64) u = 113 u of its size. Adam
// turns it into an error of the weights of rate * 113 u a step where the gradient is well above epsilon. The clipped
// gradients' root mean square is 0.5 / sqrt(1e4 parameters) = 50 epsilon, so that elements below epsilon pass on up to 50
// times as much: 3 steps * 1e-2 * 50 * 113 u = 170 u, over 0.115, the root mean square of the smallest weights (uniform
// within 0.2): 1500 u. In fp32 (u = 2^-24) 9e-5, in fp64 (2^-53) 2e-13; the bar of the issue for fp64 is 1e-10.
constexpr double fp32_tolerance = 9e-5;
constexpr double fp64_tolerance = 1e-10;

// One device, all sequences in one micro-batch, in fp64; one for each model.
class References {
public:
  Reference const& of(Model const& model) {
    std::string const key = model.name + std::to_string(model.layers) + (model.tied_embeddings ? "t" : "u");
    auto found = references_.find(key);
    if (found == references_.end()) {
      Program const program = compile(model, one_device());
      found = references_.emplace(key, reference_of(program, training(), steps)).first;
    }
    return found->second;
  }

private:
  std::map<std::string, Reference> references_;
};

struct Outcome {
  double difference = 0; // from the reference, the largest over the orders
  double replica_difference = 0;
  double smallest_norm = 1e30; // of the gradients, over orders and steps
  std::string error;
};

// Runs a plan twice from the initial weights: each step latest first, then each step in another adversarial order. `turn`
// chooses which, and the layout of the memory.
template <class Scalar>
Outcome run(EquivalenceCase const& test, Reference const& reference, int turn) {
  Outcome outcome;
  try {
    Program const program = compile(test.model, test.plan);
    Interpreter<Scalar> interpreter(program, training(), turn % 2 == 0 ? Reuse::last_freed : Reuse::same_size);
    std::vector<Order> const orders = interpreter.adversarial_orders(20);
    for (bool latest_first : {true, false}) {
      interpreter.reset();
      for (int step = 0; step < steps; ++step) {
        int const other = 1 + (turn * steps + step) % 19;
        interpreter.step(orders[static_cast<std::size_t>(latest_first ? 0 : other)]);
        outcome.smallest_norm = std::min(outcome.smallest_norm, interpreter.gradient_norm());
      }
      double const difference = relative_difference({interpreter.loss(), interpreter.weights()}, reference);
      outcome.difference = std::max(outcome.difference, difference);
      if (!(interpreter.replica_difference() == 0))
        outcome.replica_difference = interpreter.replica_difference();
    }
  } catch (std::exception const& error) {
    outcome.error = error.what();
  }
  return outcome;
}

// Runs the cases and checks each; returns the largest difference.
template <class Scalar>
double check_all(std::vector<EquivalenceCase> const& cases, double tolerance) {
  References references;
  double largest = 0;
  int turn = 0;
  for (EquivalenceCase const& test : cases) {
    Outcome const outcome = run<Scalar>(test, references.of(test.model), turn++);
    largest = std::max(largest, outcome.difference);
    bool const good = outcome.error.empty() && outcome.difference <= tolerance && outcome.replica_difference == 0 &&
                      outcome.smallest_norm > test.plan.gradient_clip;
    if (!good) {
      INFO(describe(test));
      INFO("error '" << outcome.error << "', difference " << outcome.difference << ", between replicas "
                     << outcome.replica_difference << ", gradient norm " << outcome.smallest_norm);
      CHECK(good);
    }
  }
  return largest;
}

// Pairs of settings of different kinds, from kind `first` on, that occur together in some case.
std::size_t count_pairs(std::vector<EquivalenceCase> const& cases, std::size_t first = 0) {
  std::set<std::pair<std::string, std::string>> pairs;
  for (EquivalenceCase const& test : cases) {
    std::vector<std::string> const settings = settings_of(test);
    for (std::size_t i = first; i < settings.size(); ++i)
      for (std::size_t j = i + 1; j < settings.size(); ++j)
        pairs.emplace(settings[i], settings[j]);
  }
  return pairs.size();
}

} // namespace

TEST_CASE("fp64: every combination on 2, 4 and 8 ranks is the step of one device", "[slow]") {
  std::vector<EquivalenceCase> const cases = equivalence_cases(3);
  double const largest = check_all<double>(cases, fp64_tolerance);
  std::cout << "fp64: " << cases.size() << " combinations, " << count_pairs(cases)
            << " pairs of settings, largest relative difference " << largest << "\n";
  // Drawn are 3 micro-batches, 3 bucket sizes, 3 numbers of loss chunks, 5 ways to offload and six settings of 2 values:
  // (26^2 - (3 * 3^2 + 5^2 + 6 * 2^2)) / 2 pairs.
  CHECK(count_pairs(cases, first_drawn_setting) == 300);
}

TEST_CASE("fp32: a quarter of the combinations is the step of one device in fp64", "[slow]") {
  std::vector<EquivalenceCase> cases;
  std::vector<EquivalenceCase> const all = equivalence_cases(1);
  for (std::size_t i = 0; i < all.size(); i += 4)
    cases.push_back(all[i]);
  double const largest = check_all<float>(cases, fp32_tolerance);
  std::cout << "fp32: " << cases.size() << " combinations, largest relative difference " << largest << "\n";
}

TEST_CASE("ZeRO stages 1 to 3: any groups, gathers and reductions are the step of one device", "[sharding]") {
  double const largest = check_all<double>(sharding_cases(400), fp64_tolerance);
  std::cout << "sharding: 400 combinations, largest relative difference " << largest << "\n";
}

TEST_CASE("offload: optimizer, parameters and checkpoints on any memory are the step of one device", "[offload]") {
  std::vector<EquivalenceCase> const cases = offload_cases(400);
  double const largest = check_all<double>(cases, fp64_tolerance);
  auto count = [&](auto const& is) {
    return std::count_if(cases.begin(), cases.end(),
                         [&](EquivalenceCase const& test) { return is(test.plan.offload); });
  };
  auto const parameters = count([](Offload const& o) { return o.parameters != MemoryTier::device; });
  auto const disk = count([](Offload const& o) { return o.optimizer == MemoryTier::disk; });
  auto const checkpoints = count([](Offload const& o) { return o.checkpoints; });
  std::cout << "offload: " << cases.size() << " combinations (" << parameters << " of parameters, " << disk
            << " to disk, " << checkpoints << " of checkpoints), largest relative difference " << largest << "\n";
  CHECK(std::min({parameters, disk, checkpoints}) >= 40);
}

TEST_CASE("fp64: context parallelism of each type is the step of one device", "[cp]") {
  std::vector<EquivalenceCase> const cases = context_parallel_cases(1);
  double const largest = check_all<double>(cases, fp64_tolerance);
  std::cout << "fp64, cp: " << cases.size() << " combinations, largest relative difference " << largest << "\n";
}

TEST_CASE("fp64: Domino is the step of one device", "[domino]") {
  std::vector<EquivalenceCase> const cases = domino_cases(1);
  double const largest = check_all<double>(cases, fp64_tolerance);
  std::cout << "fp64, Domino: " << cases.size() << " combinations, largest relative difference " << largest << "\n";
}

TEST_CASE("fp64: products that overlap tp communication are the step of one device", "[tp-overlap]") {
  std::vector<EquivalenceCase> const cases = tp_overlap_cases(1);
  double const largest = check_all<double>(cases, fp64_tolerance);
  std::cout << "fp64, tp overlap: " << cases.size() << " combinations, largest relative difference " << largest << "\n";
}

TEST_CASE("some combinations, for slow builds") {
  std::vector<EquivalenceCase> cases;
  std::vector<EquivalenceCase> const all = equivalence_cases(1);
  for (std::size_t i = 0; i < all.size(); i += 97)
    cases.push_back(all[i]);
  check_all<double>(cases, fp64_tolerance);
}

TEST_CASE("accumulation alone: one device, any micro-batch, is the same step") {
  Model const model = GENERATE(small_gpt(2), small_llama(2));
  References references;
  for (std::int64_t micro_batch : {1, 2, 4, 8})
    for (Schedule schedule : {Schedule::one_f_one_b, Schedule::gpipe}) {
      Plan plan = one_device();
      plan.micro_batch = micro_batch;
      plan.schedule = schedule;
      Outcome const outcome = run<double>({model, plan}, references.of(model), 1);
      CHECK(outcome.error.empty());
      CHECK(outcome.difference <= fp64_tolerance);
    }
}

TEST_CASE("a damaged program is noticed") {
  Model const model = small_gpt(2);
  Plan plan = one_device();
  plan.micro_batch = 2;
  plan.tp = plan.dp = 2;
  Program program = compile(model, plan);
  Reference const reference = reference_of(compile(model, one_device()), training());
  CHECK_FALSE(differs(program, reference, training()));
  for (LayerProgram& layer : program.layer_programs)
    for (Op& op : layer.backward)
      if (op.kind == OpKind::norm_backward)
        op.waits.clear(); // what it reads is still being reduced
  CHECK(differs(program, reference, training()));
}

// The parts of the runner that need no processes.
#include "engine/fold.hpp"
#include "io/input_error.hpp"
#include "program/compile.hpp"
#include "tests/catch.hpp"
#include "tests/engine/random_plan.hpp"
#include "tests/equivalence/plans.hpp"
#include "timeline/memory.hpp"
#include "validate/devices/drive.hpp"
#include "validate/devices/measure.hpp"
#include "validate/devices/measured_timeline.hpp"
#include "validate/devices/program_hash.hpp"
#include "validate/devices/rank_memory.hpp"
#include "validate/devices/reference_kernels.hpp"
#include "validate/devices/write_file.hpp"

#include <filesystem>
#include <fstream>
#include <numeric>

using namespace foreplan;

TEST_CASE("16-bit floats round to nearest, ties to even", "[device]") {
  // bf16 has 8 bits of significand: 1 + 2^-8 lies halfway between 1 and 1 + 2^-7, 1 + 3 * 2^-8 between 1 + 2^-7 and 1 + 2^-6.
  CHECK(from_bf16(to_bf16(1 + 0x1p-8F)) == 1);
  CHECK(from_bf16(to_bf16(1 + 3 * 0x1p-8F)) == 1 + 0x1p-6F);
  CHECK(from_bf16(to_bf16(-0x1.2p-130F)) == -0x1.2p-130F); // subnormal, 2^-133 is the least
  CHECK(std::isinf(from_bf16(to_bf16(3.4e38F))));          // above the largest, 3.39e38, by more than half a step
  CHECK(std::isnan(from_bf16(to_bf16(NAN))));
  // fp16 has 11 bits.
  CHECK(from_fp16(to_fp16(1 + 0x1p-11F)) == 1);
  CHECK(from_fp16(to_fp16(1 + 3 * 0x1p-11F)) == 1 + 0x1p-9F);
  CHECK(from_fp16(to_fp16(65504)) == 65504);
  CHECK(std::isinf(from_fp16(to_fp16(65520))));
  CHECK(from_fp16(to_fp16(0x1p-25F)) == 0); // half of the least, 2^-24
  CHECK(from_fp16(to_fp16(3 * 0x1p-25F)) == 0x1p-23F);
  for (int bits = 0; bits < 0x10000; ++bits) { // every number that there is stays itself
    auto const word = static_cast<std::uint16_t>(bits);
    if (!std::isnan(from_fp16(word)))
      CHECK(to_fp16(from_fp16(word)) == word);
    if (!std::isnan(from_bf16(word)))
      CHECK(to_bf16(from_bf16(word)) == word);
  }
}

TEST_CASE("the interval of a median leaves out at most 2.5 % at each end", "[device]") {
  std::vector<double> values(20);
  std::iota(values.rbegin(), values.rend(), 1);
  // Of 20 coins, at most 5 heads: (1 + 20 + 190 + 1140 + 4845 + 15504) / 2^20 = 2.07 %; at most 6: 5.8 %. So the 6th from each end.
  Median const median = median_of(values);
  CHECK(median.value == 10.5);
  CHECK(median.low == 6);
  CHECK(median.high == 15);
  // Of 6, none: 1.6 %: the least and the greatest. Fewer cannot do better.
  CHECK(median_of({3, 1, 2, 6, 5, 4}).low == 1);
  CHECK(median_of({3, 1, 2}).high == 3);
}

TEST_CASE("a layout in bytes uses what memory_of says", "[device]") {
  std::vector<EquivalenceCase> const cases = equivalence_cases(1);
  for (std::size_t i = 0; i < cases.size(); i += 7) {
    Program const program = compile(cases[i].model, cases[i].plan);
    for (StageProgram const& stage : program.stages) {
      StageStorage const layout = lay_out(program, stage, Reuse::same_size, units_of(Storage::as_planned));
      if (layout.peak != memory_of(program, stage).peak.use.total()) {
        INFO(describe(cases[i]));
        CHECK(layout.peak == memory_of(program, stage).peak.use.total());
      }
      for (std::int64_t address : layout.persistent)
        CHECK((address == -1 || address % buffer_alignment == 0));
    }
  }
}

TEST_CASE("an instance has the place that the engines give its op", "[device]") {
  std::mt19937_64 random(3);
  for (int number = 0; number < 20; ++number) {
    Model const model = testing::llama(8);
    Plan const plan = testing::random_plan(random, model, 64);
    Cluster const cluster = testing::random_cluster(random, plan, true);
    Program const program = compile(model, plan);
    Folding const folding = fold(program, cluster);
    for (std::size_t c = 0; c < folding.classes.size(); ++c) {
      StageProgram const& stage = program.stages[folding.classes[c].stage.index()];
      std::vector<Instance> const instances = instances_of(program, stage);
      std::vector<Place> const places = places_of(program, stage);
      REQUIRE(places.size() == instances.size());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < places.size(); ++i) {
        Use const& use = folding.program.classes[c].uses[static_cast<std::size_t>(places[i].use)];
        BlockOrigin const& block = folding.blocks[static_cast<std::size_t>(use.block)];
        Op const& op = op_of(block, static_cast<std::size_t>(places[i].item));
        wrong += op.kind == instances[i].op->kind && op.stream == instances[i].op->stream ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a program's hash tells plans and models apart", "[device]") {
  std::vector<EquivalenceCase> const cases = equivalence_cases(1);
  EquivalenceCase const& one = cases[5];
  CHECK(hash_of(compile(one.model, one.plan)) == hash_of(compile(one.model, one.plan)));
  Plan longer = one.plan;
  longer.gradient_clip *= 2;
  CHECK(hash_of(compile(one.model, longer)) != hash_of(compile(one.model, one.plan)));
  Model wider = one.model;
  wider.ffn *= 2;
  CHECK(hash_of(compile(wider, one.plan)) != hash_of(compile(one.model, one.plan)));
}

TEST_CASE("a reference kernel on bf16 is the fp32 one, rounded", "[device]") {
  Tensor tensor;
  tensor.shape = {3};
  tensor.dtype = DType::bf16;
  std::vector<std::uint16_t> x{to_bf16(1), to_bf16(2), to_bf16(-3)}, y{to_bf16(0x1p-8F), to_bf16(4), to_bf16(1)};
  Operand const reads[] = {{x.data(), &tensor}, {y.data(), &tensor}};
  Operand const writes[] = {{x.data(), &tensor}}; // in place
  Op op;
  op.kind = OpKind::add;
  run_reference_kernel(Storage::as_planned, op, reads, writes, {});
  CHECK(from_bf16(x[0]) == 1); // 1 + 2^-8 is a tie, to even
  CHECK(from_bf16(x[1]) == 6);
  CHECK(from_bf16(x[2]) == -2);
}

TEST_CASE("a file is written whole or not at all", "[device]") {
  namespace fs = std::filesystem;
  fs::path const folder = fs::temp_directory_path() / "foreplan_write_file_test";
  fs::create_directory(folder);
  std::string const path = folder / "a.json";
  write_file(path, "--json", [](std::ostream& out) { out << "whole"; });
  CHECK_THROWS_AS(write_file(path, "--json", [](std::ostream& out) { out.setstate(std::ios::failbit); }), InputError);
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  CHECK(text == "whole");
  CHECK(std::distance(fs::directory_iterator(folder), fs::directory_iterator()) == 1); // nothing beside it
  CHECK_THROWS_AS(require_writable(folder / "none" / "a.json", "--json"), InputError);
  CHECK_THROWS_AS(require_writable(folder, "--json"), InputError);
  fs::remove_all(folder);
}

TEST_CASE("a drive keeps bytes at any offset, beside others in the same block", "[device]") {
  Drive drive(drive_path(), 10'000);
  std::vector<unsigned char> first(5000, 1), second(5000, 2), all(10'000);
  drive.write(0, first.data(), 5000);
  drive.write(5000, second.data(), 5000); // blocks of 4096: both lie in the second
  drive.write(4999, &second[0], 1);
  drive.read(0, all.data(), 10'000);
  CHECK(std::count(all.begin(), all.end(), 1) == 4999);
  CHECK(std::count(all.begin(), all.end(), 2) == 5001);
}

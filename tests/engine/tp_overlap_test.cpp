// A product that overlaps its gather takes the longer of the two, and one block.
#include "engine/engine.hpp"
#include "engine/fold.hpp"
#include "program/compile.hpp"
#include "tests/catch.hpp"
#include "tests/engine/random_plan.hpp"

#include <algorithm>
#include <string>

using namespace foreplan;

namespace {

struct Measured {
  double product = 0;  // of one block
  double transfer = 0; // of one block
  double together = 0; // from the first of them to the end of the last
};

// QKV of the first block, forward.
Measured measure(int tp, BytesPerSecond link) {
  Model const model = testing::llama(1);
  Plan plan;
  plan.tp = tp;
  plan.sequence_parallel = plan.tp_overlap = true;
  plan.sequence_length = 4096;
  plan.micro_batch = plan.global_batch = 1;
  Cluster cluster{testing::test_profile(tp, tp), 1, {}};
  cluster.profile.issue = Seconds(0);
  cluster.profile.node.scale_up = link;
  Program const program = compile(model, plan);
  Folding const folding = fold(program, cluster, {.interference = false});
  Timeline const timeline = run_fast(folding.program);
  Measured result;
  double begin = 1e30, end = 0;
  for (TimelineEntry const& entry : timeline.classes[0]) {
    auto const use = static_cast<std::size_t>(entry.use);
    if (folding.classes[0].uses[use].layer != 1)
      continue;
    BlockOrigin const& origin = folding.blocks[static_cast<std::size_t>(folding.program.classes[0].uses[use].block)];
    Op const& op = op_of(origin, static_cast<std::size_t>(entry.item));
    bool const transfer = op.name.starts_with("gather norm 1 output, block");
    if (origin.kind != SlotKind::forward || (!transfer && !op.name.starts_with("qkv, block")))
      continue;
    (transfer ? result.transfer : result.product) = entry.end - entry.start;
    begin = std::min(begin, entry.start);
    end = std::max(end, entry.end);
  }
  result.together = end - begin;
  return result;
}

} // namespace

// t products p one after the other; the k-th block is there after k transfers s. So t p, if p >= s; else the last of t - 1
// transfers, and its product.
TEST_CASE("tp overlap: max(products, transfers) and one block") {
  for (int tp : {2, 4, 8})
    for (double link : {900e9, 100e9, 10e9}) {
      Measured const measured = measure(tp, BytesPerSecond(link));
      INFO("tp " << tp << ", " << link / 1e9 << " GB/s");
      CHECK(measured.together ==
            Approx(std::max(tp * measured.product, (tp - 1) * measured.transfer + measured.product)).epsilon(1e-9));
    }
}

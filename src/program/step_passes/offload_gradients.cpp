// ZeRO-Offload and ZeRO-Infinity with ZeRO 2 and 3 (arXiv 2101.06840, section 4.2; arXiv 2104.07857, section 5.1): the
// shards that gradients add up in live with the optimizer's states, on the host or its drives. One is on the device
// only while a micro-batch is added: it comes up under the layer in front (not in the first micro-batch) and goes down
// at once. Squares for the global norm are taken from it on its last visit, as DeepSpeed does (stage_1_and_2.py,
// set_norm_for_param_grad_in_gpu).
#include "program/step_passes/host_buffers.hpp"
#include "program/step_passes/step_passes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace foreplan {

namespace {

class HostGradients {
public:
  HostGradients(Program const& program, StageProgram& stage)
      : tier_(program.plan.offload.optimizer), stage_(stage), buffers_("gradients to disk", 3) {}

  void run() {
    for (Bucket const& bucket : stage_.buckets)
      bring_together(bucket);
    std::vector<Element> const elements = std::move(stage_.elements);
    stage_.elements.clear();
    before_.resize(elements.size());
    after_.resize(elements.size());
    for (std::size_t e = 0; e < elements.size(); ++e)
      if (std::holds_alternative<Slot>(elements[e]))
        slots_.push_back(e);
    adam_ = static_cast<std::size_t>(std::find_if(elements.begin(), elements.end(), is_adam) - elements.begin());
    for (std::size_t k = 0; k < stage_.buckets.size(); ++k)
      visit(k, elements);
    for (std::size_t e = 0; e < elements.size(); ++e) {
      write_down(before_[e]);
      stage_.elements.push_back(elements[e]);
      if (Op* op = std::get_if<Op>(&stage_.elements.back()); op != nullptr && op->kind == OpKind::adam)
        op->reads[0] = home_of(BufferId(stage_[op->reads[0]].buffer.index));
      write_down(after_[e]);
    }
  }

private:
  struct Move {
    enum class What { down, up, give_up };
    What what = What::down;
    std::size_t bucket = 0;
    TensorId device, home;
  };

  static bool is_adam(Element const& element) {
    Op const* op = std::get_if<Op>(&element);
    return op != nullptr && op->kind == OpKind::adam;
  }

  bool touches(Op const& op, BufferId buffer) const {
    auto is = [&](TensorId id) { return stage_[id].buffer == BufferRef{BufferRef::Scope::stage, buffer.value()}; };
    return std::any_of(op.reads.begin(), op.reads.end(), is) || std::any_of(op.writes.begin(), op.writes.end(), is);
  }

  // Positions of the ops that use a bucket's accumulated gradients, but for the update.
  std::vector<std::size_t> uses_of(Bucket const& bucket, std::vector<Element> const& elements) const {
    std::vector<std::size_t> uses;
    for (std::size_t e = 0; e < elements.size(); ++e)
      if (Op const* op = std::get_if<Op>(&elements[e]);
          op != nullptr && op->kind != OpKind::adam && touches(*op, bucket.shard_gradients))
        uses.push_back(e);
    return uses;
  }

  // The clearing in front of the first micro-batch's sum, the squares behind the last.
  void bring_together(Bucket const& bucket) {
    std::vector<Element>& elements = stage_.elements;
    auto at = [&](std::size_t e) { return elements.begin() + static_cast<std::ptrdiff_t>(e); };
    std::vector<std::size_t> const uses = uses_of(bucket, elements);
    std::rotate(at(uses[0]), at(uses[0] + 1), at(uses[1]));
    std::size_t const squares = uses.back(), last_sum = uses[uses.size() - 2];
    std::rotate(at(last_sum + 1), at(squares), at(squares + 1));
  }

  TensorId home_of(BufferId gradients) const {
    for (auto const& [device, home] : homes_)
      if (device == gradients)
        return home;
    return {};
  }

  // The first pass of a layer behind `e`; the update, when there is none.
  std::size_t next_slot(std::size_t e) const {
    auto const slot = std::upper_bound(slots_.begin(), slots_.end(), e);
    return slot == slots_.end() ? adam_ : *slot;
  }
  std::size_t last_slot_before(std::size_t e) const { return *(std::lower_bound(slots_.begin(), slots_.end(), e) - 1); }
  std::size_t slots_between(std::size_t begin, std::size_t end) const {
    return static_cast<std::size_t>(std::lower_bound(slots_.begin(), slots_.end(), end) -
                                    std::upper_bound(slots_.begin(), slots_.end(), begin));
  }

  void visit(std::size_t k, std::vector<Element> const& elements) {
    Bucket const& bucket = stage_.buckets[k];
    std::vector<std::size_t> const uses = uses_of(bucket, elements);
    TensorId const device = std::get<Op>(elements[uses.back()]).reads[0]; // of the squares
    TensorId const home = at_home(stage_, device, fmt::format("bucket {} accumulated gradients at home", k),
                                  Category::gradients, tier_);
    homes_.emplace_back(bucket.shard_gradients, home);
    stage_.buffers[bucket.shard_gradients.index()].persistent = false;
    for (std::size_t u = 0; u < uses.size(); ++u) {
      bool const is_last = u + 1 == uses.size();
      if (!is_last && slots_between(uses[u], uses[u + 1]) < 2) // no time to go and come
        continue;
      TensorId const sum = is_last ? device : std::get<Op>(elements[uses[u]]).writes[0];
      TensorId const there = same_place(home, sum);
      after_[uses[u]].push_back({Move::What::down, k, sum, there});
      std::size_t const later = next_slot(uses[u]);
      (later == adam_ ? before_ : after_)[later].push_back({Move::What::give_up, k, sum, there});
      if (!is_last)
        before_[last_slot_before(uses[u + 1])].push_back({Move::What::up, k, sum, there});
    }
  }

  void write_down(std::vector<Move> const& moves) {
    auto add = [&](std::vector<Op> const& ops) {
      stage_.elements.insert(stage_.elements.end(), ops.begin(), ops.end());
    };
    for (Move const& move : moves) {
      std::string const name = fmt::format("gradients of bucket {}", move.bucket);
      if (move.what == Move::What::down)
        add(copy_down(stage_, move.device, move.home, name, buffers_));
      else if (move.what == Move::What::up)
        add(copy_up(stage_, move.home, move.device, name, buffers_));
      else
        add({give_up(move)});
    }
  }

  Op give_up(Move const& move) {
    Op op = step_op(stage_, OpKind::wait, "give up gradients", Stream::compute, {}, {});
    op.releases = {stage_[move.device].buffer};
    return op;
  }

  // The home, placed as the sum that goes there (along replica a part of one until the end of the step).
  TensorId same_place(TensorId home, TensorId sum) {
    Tensor tensor = stage_[home];
    tensor.placement = stage_[sum].placement;
    return add_tensor(stage_, std::move(tensor));
  }

  MemoryTier tier_;
  StageProgram& stage_;
  HostBuffers buffers_;
  std::vector<std::pair<BufferId, TensorId>> homes_; // of accumulated gradients
  std::vector<std::size_t> slots_;                   // elements
  std::size_t adam_ = 0;                             // the first update
  std::vector<std::vector<Move>> before_, after_;    // by element
};

} // namespace

void offload_gradients(Program const& program, StageProgram& stage) {
  Plan const& plan = program.plan;
  if (plan.offload.optimizer != MemoryTier::device && plan.offload.ratio >= 1 && reduces_every_micro_batch(plan))
    HostGradients(program, stage).run();
}

} // namespace foreplan

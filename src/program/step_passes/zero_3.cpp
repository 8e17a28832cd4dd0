// ZeRO stage 3 (arXiv 1910.02054, section 5.3) as FSDP runs it (arXiv 2304.11277, section 3): a rank keeps of the parameters
// only its shard. Those of a layer are gathered for each use, some layers ahead of it, and given up behind it. In the backward
// the next layer's gather is issued in front of a layer, so before its reduce-scatter ("backward prefetch", section 3.3.2).
// Memory bounds how far gathers run ahead: at most the window's layers are gathered ("rate limiter", section 3.4), and
// a gather into memory that a layer has given up waits for that layer.
#include "program/step_passes/step_passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace foreplan {

namespace {

class Zero3 {
public:
  Zero3(Program const& program, StageProgram& stage) : program_(program), plan_(program.plan), stage_(stage) {}

  void run() {
    std::vector<Element> const elements = cut_at_layers();
    find_uses(elements);
    gathered_.assign(stage_.buckets.size(), false);
    codes_.resize(stage_.buckets.size());
    secondary_.resize(stage_.buckets.size());
    std::size_t use = 0;
    for (Element const& element : elements) {
      Slot const* slot = std::get_if<Slot>(&element);
      if (slot == nullptr || !uses_parameters(*slot)) {
        result_.push_back(element);
        continue;
      }
      gather_up_to(window_end(use), use);
      release_codes(use);
      result_.push_back(element);
      give_up(use++);
    }
    stage_.elements = std::move(result_);
  }

private:
  // A pass of a layer that uses parameters.
  struct Use {
    MicroBatch micro_batch;
    bool backward = false;
    std::vector<std::size_t> buckets;
    std::int64_t elements = 0;
  };
  static constexpr auto never = static_cast<std::size_t>(-1);

  static bool uses_parameters(Slot const& slot) { return slot.kind != SlotKind::weight_gradient; }

  std::vector<Element> cut_at_layers() {
    std::vector<Element> result;
    for (Element& element : stage_.elements)
      if (Slot const* slot = std::get_if<Slot>(&element))
        for (Slot const& part : cut_slot(stage_, *slot, [](int) { return true; }))
          result.emplace_back(part);
      else
        result.push_back(std::move(element));
    return result;
  }

  // Those with parameters that a pass of the layer reads; an embedding's backward reads none.
  std::vector<std::size_t> buckets_of(int layer, SlotKind kind) const {
    StageLayer const& held = stage_.layers[static_cast<std::size_t>(layer)];
    LayerProgram const& program = program_.layer_programs[static_cast<std::size_t>(held.program)];
    std::set<BufferId> read;
    for (Op const& op : ops_of(program, kind))
      for (TensorId id : op.reads)
        if (BufferRef const buffer = program[id].buffer; buffer.scope == BufferRef::Scope::parameter)
          read.insert(held.homes[static_cast<std::size_t>(buffer.index)].parameters);
    std::vector<std::size_t> buckets;
    for (std::size_t k = 0; k < stage_.buckets.size(); ++k)
      if (!stage_.buckets[k].whole_parameters && read.contains(stage_.buckets[k].parameters))
        buckets.push_back(k);
    return buckets;
  }

  void find_uses(std::vector<Element> const& elements) {
    std::map<std::pair<int, SlotKind>, std::vector<std::size_t>> known; // of layers and passes
    for (Element const& element : elements)
      if (Slot const* slot = std::get_if<Slot>(&element); slot != nullptr && uses_parameters(*slot)) {
        auto const [buckets, is_new] = known.try_emplace({slot->first, slot->kind});
        if (is_new)
          buckets->second = buckets_of(slot->first, slot->kind);
        Use use{slot->micro_batch, slot->kind == SlotKind::backward, buckets->second, 0};
        for (std::size_t k : use.buckets)
          use.elements += stage_.buckets[k].elements;
        uses_.push_back(std::move(use));
      }
    std::vector<std::size_t> next(stage_.buckets.size(), never);
    std::set<std::pair<std::size_t, MicroBatch>> later; // buckets and micro-batches that use them
    next_use_.assign(uses_.size(), {});
    goes_on_.assign(uses_.size(), {});
    for (std::size_t u = uses_.size(); u-- > 0;)
      for (std::size_t k : uses_[u].buckets) {
        next_use_[u].push_back(next[k]);
        goes_on_[u].push_back(!later.insert({k, uses_[u].micro_batch}).second);
        next[k] = u;
      }
  }

  // The last use that is gathered for in front of `use`.
  std::size_t window_end(std::size_t use) const {
    std::size_t end = std::min(use + static_cast<std::size_t>(plan_.sharding.prefetch), uses_.size() - 1);
    std::int64_t ahead = 0;
    for (std::size_t u = use + 1; u <= end; ++u)
      ahead += uses_[u].elements;
    while (end + 1 < uses_.size() && ahead + uses_[end + 1].elements <= plan_.sharding.prefetch_elements)
      ahead += uses_[++end].elements;
    return end;
  }

  void gather_up_to(std::size_t end, std::size_t use) {
    for (std::size_t u = use; u <= end; ++u)
      for (std::size_t k : uses_[u].buckets) {
        std::int64_t const size = stage_.buckets[k].elements;
        bool const has_room = plan_.sharding.max_live == 0 || live_ + size <= plan_.sharding.max_live;
        if (gathered_[k])
          continue;
        if (u > use && !has_room)
          return;
        gather(k, u);
        live_ += size;
      }
  }

  void gather(std::size_t k, std::size_t use) {
    gathered_[k] = true;
    if (uses_[use].backward && secondary_[k]) {
      codes_[k] = gather_secondary_shards(plan_, stage_, k, *secondary_[k], result_);
      return;
    }
    codes_[k] = gather_parameters(plan_, stage_, k, result_);
    if (!plan_.sharding.secondary_shard || secondary_[k] || !is_next_gathered_by_backward(k, use))
      return; // one that is kept serves all of the step's micro-batches
    secondary_[k] = add_secondary_shard(plan_, stage_, k);
    keep_secondary_shard(plan_, stage_, k, *secondary_[k], result_);
  }

  // Whether the gather after the one for `use` is a backward's.
  bool is_next_gathered_by_backward(std::size_t k, std::size_t use) const {
    while (true) {
      std::vector<std::size_t> const& buckets = uses_[use].buckets;
      auto const i = static_cast<std::size_t>(std::find(buckets.begin(), buckets.end(), k) - buckets.begin());
      std::size_t const next = next_use_[use][i];
      if (next == never || !is_kept(use, i))
        return next != never && uses_[next].backward;
      use = next;
    }
  }

  // In front of the use the parameters are there: what they came in is no longer needed.
  void release_codes(std::size_t use) {
    Op op = step_op(stage_, OpKind::wait, "give up codes", Stream::compute, {}, {});
    for (std::size_t k : uses_[use].buckets) {
      op.releases.insert(op.releases.end(), codes_[k].begin(), codes_[k].end());
      codes_[k].clear();
    }
    if (!op.releases.empty())
      result_.emplace_back(std::move(op));
  }

  // Whether the i-th bucket of the use stays gathered.
  bool is_kept(std::size_t use, std::size_t i) const {
    std::size_t const next = next_use_[use][i];
    if (next == never)
      return false;
    if (next <= window_end(use)) // it would have to be there before it is given up
      return true;
    bool const kept = plan_.sharding.reshard == Reshard::after_step ||
                      (plan_.sharding.reshard == Reshard::after_backward && goes_on_[use][i]);
    std::int64_t distance = 0; // elements used in between
    for (std::size_t u = use + 1; !kept && u < next && distance < plan_.sharding.reuse_distance; ++u)
      distance += uses_[u].elements;
    return kept || distance < plan_.sharding.reuse_distance;
  }

  void give_up(std::size_t use) {
    Op op = step_op(stage_, OpKind::wait, "give up gathered parameters", Stream::compute, {}, {});
    for (std::size_t i = 0; i < uses_[use].buckets.size(); ++i) {
      std::size_t const k = uses_[use].buckets[i];
      if (is_kept(use, i))
        continue;
      op.releases.push_back({BufferRef::Scope::stage, stage_.buckets[k].parameters.value()});
      gathered_[k] = false;
      live_ -= stage_.buckets[k].elements;
    }
    if (!op.releases.empty())
      result_.emplace_back(std::move(op));
  }

  Program const& program_;
  Plan const& plan_;
  StageProgram& stage_;
  std::vector<Use> uses_;                          // in issue order
  std::vector<std::vector<std::size_t>> next_use_; // of each use's buckets
  std::vector<std::vector<bool>> goes_on_;         // whether the micro-batch uses it again
  std::vector<Element> result_;
  std::vector<bool> gathered_;                           // by bucket
  std::vector<std::vector<BufferRef>> codes_;            // of gathered buckets, not given up yet
  std::vector<std::optional<SecondaryShard>> secondary_; // of buckets whose forward has kept one
  std::int64_t live_ = 0;                                // elements gathered
};

} // namespace

void zero_3(Program const& program, StageProgram& stage) {
  if (program.plan.zero_stage == 3 && !shard_axes(program.plan).empty())
    Zero3(program, stage).run();
}

} // namespace foreplan

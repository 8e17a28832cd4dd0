#include "interpreter/storage.hpp"

#include <algorithm>
#include <stdexcept>

namespace foreplan {
namespace {

using Space = BufferKey::Space;

// Addresses from zero.
class Arena {
public:
  explicit Arena(Reuse reuse) : reuse_(reuse) {}

  std::int64_t allocate(std::int64_t size) {
    auto const block = find_block(size);
    if (block == free_.end()) {
      size_ += size;
      return size_ - size;
    }
    std::int64_t const address = block->begin;
    block->begin += size;
    if (block->begin == block->end)
      free_.erase(block);
    return address;
  }

  void free(Range range) { free_.push_back(range); }
  [[nodiscard]] std::int64_t size() const { return size_; }

private:
  std::vector<Range>::iterator find_block(std::int64_t size) {
    auto const last = [&](auto fits) {
      auto const found = std::find_if(free_.rbegin(), free_.rend(), fits);
      return found == free_.rend() ? free_.end() : std::next(found).base();
    };
    auto const large_enough = [size](Range range) { return range.end - range.begin >= size; };
    if (reuse_ == Reuse::last_freed)
      return last(large_enough);
    auto const same = last([size](Range range) { return range.end - range.begin == size; });
    return same != free_.end() ? same : std::find_if(free_.begin(), free_.end(), large_enough);
  }

  Reuse reuse_;
  std::vector<Range> free_; // in the order in which they were freed
  std::int64_t size_ = 0;
};

struct Live {
  Range range; // of the buffer itself; the arena's may be longer
  bool released = false;
};

class Layout {
public:
  Layout(Program const& program, StageProgram const& stage, Reuse reuse, StorageUnits const& units)
      : program_(program), stage_(stage), arena_(reuse) {
    storage_.units = units;
  }

  StageStorage take() {
    place_persistent();
    storage_.instances = instances_of(program_, stage_);
    for (Instance const& instance : storage_.instances)
      bind(instance);
    storage_.size = storage_.arena + arena_.size();
    for (TensorId id : stage_.initial)
      storage_.initial.push_back(operand(Instance{}, stage_[id], false));
    return std::move(storage_);
  }

private:
  void place_persistent() {
    std::int64_t next = 0;
    storage_.persistent.assign(stage_.buffers.size(), -1);
    for (MemoryTier tier : {MemoryTier::device, MemoryTier::host, MemoryTier::disk}) {
      std::int64_t const begin = next;
      for (std::size_t b = 0; b < stage_.buffers.size(); ++b)
        if (Buffer const& buffer = stage_.buffers[b]; buffer.persistent && buffer.tier == tier) {
          storage_.persistent[b] = next;
          next += aligned(size_of(buffer));
          in_use_ += tier == MemoryTier::device ? size_of(buffer) : 0;
        }
      storage_.drives = {begin, next}; // the last of them
    }
    storage_.peak = in_use_;
    std::int64_t const ids = aligned(ids_of_micro_batch() * program_.plan.micro_batches());
    storage_.tokens = next;
    storage_.labels = next + ids;
    storage_.arena = next + 2 * ids;
  }

  [[nodiscard]] std::int64_t aligned(std::int64_t size) const {
    std::int64_t const alignment = storage_.units.alignment;
    return (size + alignment - 1) / alignment * alignment;
  }
  [[nodiscard]] std::int64_t size_of(Buffer const& buffer) const {
    return buffer.elements * storage_.units.of(buffer.dtype);
  }
  [[nodiscard]] std::int64_t ids_of_micro_batch() const {
    return program_.plan.tokens() * storage_.units.of(DType::int32);
  }

  void bind(Instance const& instance) {
    Op const& op = *instance.op;
    BoundInstance bound{.op = &op,
                        .micro_batch = instance.micro_batch,
                        .first_operand = static_cast<std::int32_t>(storage_.operands.size()),
                        .reads = static_cast<std::int32_t>(op.reads.size()),
                        .writes = static_cast<std::int32_t>(op.writes.size()),
                        .first_release = static_cast<std::int32_t>(storage_.releases.size()),
                        .release_count = 0};
    for (TensorId id : op.reads)
      bind_operand(instance, id, false);
    for (TensorId id : op.writes)
      bind_operand(instance, id, true);
    storage_.peak = std::max(storage_.peak, in_use_);
    for (BufferRef buffer : op.releases)
      release(resolve(program_, stage_, instance, buffer));
    bound.release_count = static_cast<std::int32_t>(storage_.releases.size()) - bound.first_release;
    storage_.bound.push_back(bound);
  }

  void bind_operand(Instance const& instance, TensorId id, bool writes) {
    storage_.operands.push_back(operand(instance, tensor_of(stage_, instance, id), writes));
  }

  BoundOperand operand(Instance const& instance, Tensor const& tensor, bool writes) {
    Access const access = resolve(program_, stage_, instance, tensor, Coordinate{});
    Range const range = range_of(access.key, writes);
    std::int64_t const unit = storage_.units.of(tensor.dtype);
    BoundOperand const bound{range.begin + access.begin * unit, unit, &tensor};
    Coordinate last; // the first rank's shard and the last one's
    for (Axis axis : all_axes)
      last[axis] = degree(program_.plan, axis) - 1;
    auto const [lowest, highest] = std::minmax({bound.address, bound.on(last)});
    if (lowest < range.begin || highest + tensor.elements() * unit > range.end)
      throw std::runtime_error("tensor '" + tensor.name + "' exceeds its buffer");
    return bound;
  }

  // The place of a buffer at this point of the issue order. Reading a released buffer finds its old place; reading one
  // that nobody wrote finds a fresh one.
  Range range_of(BufferKey const& key, bool writes) {
    if (key.space == Space::tokens || key.space == Space::labels)
      return ids(key);
    if (key.space == Space::stage && storage_.persistent[static_cast<std::size_t>(key.index)] >= 0) {
      std::int64_t const address = storage_.persistent[static_cast<std::size_t>(key.index)];
      return {address, address + size_of(stage_.buffers[static_cast<std::size_t>(key.index)])};
    }
    auto const [found, is_new] = live_.try_emplace(key);
    Live& live = found->second;
    if (is_new || (live.released && writes)) {
      std::int64_t const size = size_of(buffer_of(program_, stage_, key));
      std::int64_t const address = storage_.arena + arena_.allocate(aligned(size));
      live = {{address, address + size}, false};
      in_use_ += size;
    }
    return live.range;
  }

  [[nodiscard]] Range ids(BufferKey const& key) const {
    std::int64_t const count = ids_of_micro_batch();
    std::int64_t const base = key.space == Space::tokens ? storage_.tokens : storage_.labels;
    return {base + key.micro_batch * count, base + (key.micro_batch + 1) * count};
  }

  void release(BufferKey const& key) {
    if (key.space == Space::stage && storage_.persistent[static_cast<std::size_t>(key.index)] >= 0) {
      storage_.releases.push_back(range_of(key, false)); // its memory stays its own
      return;
    }
    auto const found = live_.find(key);
    if (found == live_.end() || found->second.released)
      return;
    found->second.released = true;
    Range const range = found->second.range;
    in_use_ -= range.end - range.begin;
    storage_.releases.push_back(range);
    std::int64_t const begin = range.begin - storage_.arena;
    arena_.free({begin, begin + aligned(range.end - range.begin)});
  }

  Program const& program_;
  StageProgram const& stage_;
  StageStorage storage_;
  Arena arena_;
  std::int64_t in_use_ = 0; // by buffers
  std::unordered_map<BufferKey, Live, BufferKeyHash> live_;
};

} // namespace

// The gaps between the initial tensors of the persistent buffers, and the arena.
std::vector<Range> undefined_ranges(StageStorage const& storage, Coordinate const& at) {
  std::vector<Range> defined{{storage.tokens, storage.arena}};
  for (BoundOperand const& initial : storage.initial)
    defined.push_back({initial.on(at), initial.on(at) + initial.tensor->elements() * initial.unit});
  std::sort(defined.begin(), defined.end(), [](Range a, Range b) { return a.begin < b.begin; });
  std::vector<Range> gaps;
  std::int64_t next = 0;
  for (Range range : defined) {
    if (range.begin > next)
      gaps.push_back({next, range.begin});
    next = std::max(next, range.end);
  }
  gaps.push_back({next, storage.size});
  return gaps;
}

StageStorage lay_out(Program const& program, StageProgram const& stage, Reuse reuse, StorageUnits const& units) {
  return Layout(program, stage, reuse, units).take();
}

} // namespace foreplan

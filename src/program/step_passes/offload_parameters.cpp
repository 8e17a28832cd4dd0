// ZeRO-Infinity (arXiv 2104.07857, sections 5.1 and 6.2): the shards of ZeRO-3 live in the host's memory or on its
// drives. Every rank brings up its own, over its own link ("bandwidth-centric partitioning"), some passes of layers
// ahead of the gather that zero_3 put in; from a drive, as many ahead of that ("dynamic prefetching": drive to host,
// host to device, gather, each under what is in front of it). A shard's place on the device is given up with what was
// gathered.
#include "program/step_passes/host_buffers.hpp"
#include "program/step_passes/step_passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace foreplan {

namespace {

class HostParameters {
public:
  HostParameters(Program const& program, StageProgram& stage)
      : offload_(program.plan.offload), stage_(stage), buffers_("parameters from disk", offload_.prefetch + 2) {}

  void run() {
    for (std::size_t k = 0; k < stage_.buckets.size(); ++k)
      if (!stage_.buckets[k].whole_parameters)
        move_home(k);
    std::vector<Element> const elements = std::move(stage_.elements);
    stage_.elements.clear();
    find_fetches(elements);
    std::vector<std::vector<std::size_t>> reads(elements.size()), copies(elements.size()); // fetches, in front of it
    for (std::size_t f = 0; f < fetches_.size(); ++f) {
      if (offload_.parameters == MemoryTier::disk)
        reads[fetches_[f].read_before].push_back(f);
      copies[fetches_[f].copy_before].push_back(f);
    }
    for (std::size_t e = 0; e < elements.size(); ++e) {
      for (std::size_t f : reads[e])
        read(fetches_[f]);
      for (std::size_t f : copies[e])
        copy(fetches_[f]);
      stage_.elements.push_back(elements[e]);
      if (Op* op = std::get_if<Op>(&stage_.elements.back()))
        use_staged(*op);
    }
  }

private:
  // A shard's place on the device.
  struct Staged {
    std::size_t bucket = 0;
    BufferId buffer;
  };
  // What one gather needs.
  struct Fetch {
    std::size_t bucket = 0;
    TensorId home, staged, host;                  // `host`: on its way from a drive
    std::size_t read_before = 0, copy_before = 0; // elements
  };

  void move_home(std::size_t k) {
    Bucket const& bucket = stage_.buckets[k];
    stage_.buffers[bucket.shard_parameters.index()].tier = offload_.parameters;
    Buffer const storage{fmt::format("bucket {} parameters, own shard on the device", k), Category::parameters,
                         stage_.buffers[bucket.shard_parameters.index()].dtype, bucket.shard_elements, false};
    staged_[bucket.shard_parameters] = {k, add_buffer(stage_, storage)};
  }

  static bool releases(Op const& op, BufferId buffer) {
    return std::find(op.releases.begin(), op.releases.end(), BufferRef{BufferRef::Scope::stage, buffer.value()}) !=
           op.releases.end();
  }

  Staged const* staged_of(Op const& op) const {
    if (op.kind != OpKind::all_gather || stage_[op.reads[0]].buffer.scope != BufferRef::Scope::stage)
      return nullptr;
    auto const found = staged_.find(BufferId(stage_[op.reads[0]].buffer.index));
    return found == staged_.end() ? nullptr : &found->second;
  }

  void find_fetches(std::vector<Element> const& elements) {
    std::vector<std::size_t> slots;
    std::map<std::size_t, std::size_t> free_from; // by bucket: behind the last release
    for (std::size_t e = 0; e < elements.size(); ++e) {
      Op const* op = std::get_if<Op>(&elements[e]);
      if (op == nullptr) {
        slots.push_back(e);
        continue;
      }
      for (auto const& [home, staged] : staged_)
        if (releases(*op, stage_.buckets[staged.bucket].parameters))
          free_from[staged.bucket] = e + 1;
      if (Staged const* staged = staged_of(*op)) {
        auto ahead = [&](std::size_t passes) {
          return passes == 0 ? e : slots.size() < passes ? 0 : slots[slots.size() - passes];
        };
        auto const prefetch = static_cast<std::size_t>(offload_.prefetch);
        std::size_t const copy_before = std::max(ahead(prefetch), free_from[staged->bucket]);
        TensorId const on_device = add_tensor(stage_,
                                              flat_tensor(stage_, staged->buffer, stage_[op->reads[0]].placement));
        fetches_.push_back(
            {staged->bucket, op->reads[0], on_device, {}, std::min(ahead(2 * prefetch), copy_before), copy_before});
      }
    }
  }

  void read(Fetch& fetch) {
    fetch.host = buffers_.take(stage_, fetch.home);
    stage_.elements.emplace_back(copy_op(stage_, fetch.home, fetch.host,
                                         fmt::format("parameters of bucket {} from disk", fetch.bucket),
                                         Stream::disk_read));
  }

  void copy(Fetch const& fetch) {
    bool const from_disk = offload_.parameters == MemoryTier::disk;
    Op up = copy_op(stage_, from_disk ? fetch.host : fetch.home, fetch.staged,
                    fmt::format("parameters of bucket {} up", fetch.bucket), Stream::copy_up);
    if (from_disk)
      buffers_.give_back(stage_, fetch.host, up);
    stage_.elements.emplace_back(std::move(up));
  }

  // Gathers read what was brought up; who gives up what was gathered gives that up, too.
  void use_staged(Op& op) {
    if (staged_of(op) != nullptr)
      op.reads[0] = fetches_[next_gather_++].staged;
    for (auto const& [home, staged] : staged_)
      if (releases(op, stage_.buckets[staged.bucket].parameters))
        op.releases.push_back({BufferRef::Scope::stage, staged.buffer.value()});
  }

  Offload const& offload_;
  StageProgram& stage_;
  HostBuffers buffers_;
  std::map<BufferId, Staged> staged_; // by home
  std::vector<Fetch> fetches_;        // by gather
  std::size_t next_gather_ = 0;
};

} // namespace

void offload_parameters(Program const& program, StageProgram& stage) {
  if (program.plan.offload.parameters != MemoryTier::device)
    HostParameters(program, stage).run();
}

} // namespace foreplan

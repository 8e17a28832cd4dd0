// Flat parameter and gradient buffers (Megatron-LM's ParamAndGradBuffer): the parameters of a chunk, last layer first, in
// buckets that are reduced, sharded and updated as one. Parameters of one bucket are alike along tp and pp; all of a
// chunk's tp-replicated ones (norms, some biases) share one bucket, and a tied matrix has its own. ZeRO-3 has buckets for each
// layer (FSDP's units, arXiv 2304.11277, section 3.2.1); parameters below its threshold share one of the chunk.
#include "program/step_passes/step_passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace foreplan {

namespace {

class Layout {
public:
  Layout(Program const& program, StageProgram& stage) : program_(program), stage_(stage) {}

  void lay_out(Chunk chunk) {
    LayerRange const range = stage_.chunks[chunk.index()];
    for (Sort sort : {Sort::split, Sort::whole, Sort::tied})
      for (bool cut : {true, false})
        for (bool quantized : {true, false})
          lay_out(chunk, range, {sort, cut, quantized});
  }

  void allocate() {
    for (std::size_t k = 0; k < stage_.buckets.size(); ++k) {
      Bucket& bucket = stage_.buckets[k];
      std::int64_t const shards = group_size(program_.plan, data_axes) * least_shard(program_.plan);
      bucket.elements = (bucket.elements + shards - 1) / shards * shards;
      Buffer& parameters = stage_.buffers[bucket.parameters.index()];
      Buffer& gradients = stage_.buffers[bucket.gradients.index()];
      parameters.elements = gradients.elements = bucket.elements;
      // All of it, until it is shared out.
      bucket.shard_elements = bucket.elements;
      bucket.shard_parameters = bucket.parameters;
      bucket.shard_gradients = bucket.gradients;
    }
  }

private:
  // Elements of which a shard is a multiple. Codes of 4 bits share bytes; DeepSpeed's groups are whole multiples of 8.
  static std::int64_t least_shard(Plan const& plan) {
    return plan.sharding.weight_bits > 0 || plan.sharding.gradient_bits > 0 ? 8 : 1;
  }

  enum class Sort { split, whole, tied };

  // What parameters of a bucket have in common.
  struct Kind {
    Sort sort = Sort::split;
    bool cut = false;       // gathered for each use
    bool quantized = false; // their gradients on the wire
    friend bool operator==(Kind const&, Kind const&) = default;
  };

  void lay_out(Chunk chunk, LayerRange range, Kind const& kind) {
    open_ = none;
    for (int layer = range.last - 1; layer >= range.first; --layer) {
      std::vector<Parameter> const& parameters = layer_program(layer).parameters;
      for (std::size_t p = 0; p < parameters.size(); ++p)
        if (kind_of(layer, p) == kind) {
          if (kind.quantized)
            open_ = none; // every matrix by itself (all_to_all_quant_reduce)
          place(chunk, layer, p);
        }
      bool const is_full = kind.sort == Sort::split && open_ != none && program_.plan.bucket_elements > 0 &&
                           bucket().elements >= program_.plan.bucket_elements;
      if (kind.cut || is_full)
        open_ = none;
    }
  }

  Kind kind_of(int layer, std::size_t p) const {
    Parameter const& parameter = layer_program(layer).parameters[p];
    return {sort_of(parameter), is_cut(parameter), is_quantized(layer_program(layer), p)};
  }

  // qgZ: of matrices, which stand second in the ops that use them; the gradients of vectors (norms, biases) are reduced as
  // they are (coalesced_collectives.py, all_to_all_quant_reduce).
  bool is_quantized(LayerProgram const& layer, std::size_t p) const {
    BufferRef const parameter{BufferRef::Scope::parameter, static_cast<std::int32_t>(p)};
    return program_.plan.sharding.gradient_bits > 0 &&
           std::any_of(layer.forward.begin(), layer.forward.end(), [&](Op const& op) {
             bool const takes_matrix = op.kind == OpKind::linear_forward || op.kind == OpKind::embedding_forward ||
                                       op.kind == OpKind::add_positions;
             return takes_matrix && layer[op.reads[1]].buffer == parameter;
           });
  }

  bool is_cut(Parameter const& parameter) const {
    return program_.plan.zero_stage == 3 && !shard_axes(program_.plan).empty() &&
           parameter.elements() > program_.plan.sharding.persistence_threshold;
  }

  // With one tensor-parallel rank all parameters are alike.
  Sort sort_of(Parameter const& parameter) const {
    if (parameter.tied && program_.plan.pp > 1)
      return Sort::tied;
    return program_.plan.tp > 1 && parameter.placement[Axis::tp] == replicated ? Sort::whole : Sort::split;
  }

  LayerProgram const& layer_program(int layer) const {
    return program_.layer_programs[static_cast<std::size_t>(stage_.layers[static_cast<std::size_t>(layer)].program)];
  }

  Bucket& bucket() { return stage_.buckets[open_]; }

  void place(Chunk chunk, int layer, std::size_t p) {
    Parameter const& parameter = layer_program(layer).parameters[p];
    auto& homes = stage_.layers[static_cast<std::size_t>(layer)].homes;
    homes.resize(layer_program(layer).parameters.size());
    if (parameter.tied && ends_share_stage(program_.plan)) {
      // One stage holds both ends: the head uses the embedding's home, whichever is laid out first.
      if (tied_home_) {
        homes[p] = *tied_home_;
        Bucket& tied = stage_.buckets[tied_bucket_];
        tied.lowest_layer = std::min(tied.lowest_layer, layer);
        tied.chunk = std::min(tied.chunk, chunk); // the first forward and the last backward of it
        return;
      }
    }
    if (open_ == none)
      open(chunk, layer, p);
    bucket().lowest_layer = layer;
    homes[p] = {bucket().parameters, bucket().gradients, bucket().elements};
    bucket().elements += parameter.elements();
    if (parameter.tied) {
      tied_home_ = homes[p];
      tied_bucket_ = open_;
    }
  }

  void open(Chunk chunk, int layer, std::size_t p) {
    Parameter const& parameter = layer_program(layer).parameters[p];
    std::size_t const k = stage_.buckets.size();
    std::string const name = fmt::format("bucket {}", k);
    Bucket bucket;
    bucket.chunk = chunk;
    bucket.highest_layer = bucket.lowest_layer = layer;
    bucket.whole_parameters = !is_cut(parameter);
    bucket.quantized_gradients = is_quantized(layer_program(layer), p);
    bucket.placement = flat(parameter.placement);
    bucket.gradient_placement = flat(parameter.gradient_placement);
    bucket.parameters = add_buffer(
        stage_, {name + " parameters", Category::parameters, program_.plan.parameter_dtype, 0, true});
    bucket.gradients = add_buffer(
        stage_, {name + " gradients", Category::gradients, layer_gradient_dtype(program_.plan), 0, true});
    stage_.buckets.push_back(bucket);
    open_ = k;
  }

  // In a flat view a shard is a shard, whatever dimension the parameter was cut along.
  static Placement flat(Placement placement) {
    for (AxisPlacement& along : placement.along)
      if (along.kind == AxisPlacement::Kind::sharded)
        along.dimension = 0;
    return placement;
  }

  Program const& program_;
  StageProgram& stage_;
  static constexpr auto none = static_cast<std::size_t>(-1);
  std::size_t open_ = none; // the bucket being filled
  std::optional<ParameterHome> tied_home_ = std::nullopt;
  std::size_t tied_bucket_ = 0;
};

} // namespace

void flat_parameters(Program const& program, StageProgram& stage) {
  Layout layout(program, stage);
  for (std::size_t chunk = stage.chunks.size(); chunk-- > 0;)
    layout.lay_out(Chunk(static_cast<std::int64_t>(chunk)));
  layout.allocate();
}

} // namespace foreplan

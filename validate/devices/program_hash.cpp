#include "validate/devices/program_hash.hpp"

#include "plan/read_plan.hpp"

#include <bit>

namespace foreplan {
namespace {

// FNV-1a, 64 bits, over words.
class Hash {
public:
  void add(std::uint64_t word) {
    for (int byte = 0; byte < 8; ++byte) {
      value_ = (value_ ^ ((word >> (8 * byte)) & 0xffU)) * 0x100000001b3ULL;
    }
  }
  template <class Integer>
  requires(std::is_integral_v<Integer> || std::is_enum_v<Integer>) void add(Integer value) {
    add(static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
  }
  void add(double value) { add(std::bit_cast<std::uint64_t>(value)); }
  void add(std::string const& text) {
    add(text.size());
    for (char c : text)
      add(c);
  }
  template <class Tag>
  void add(Index<Tag> index) {
    add(index.value());
  }
  void add(BufferRef buffer) {
    add(buffer.scope);
    add(buffer.index);
  }
  template <class Value>
  void add(std::vector<Value> const& values) {
    add(values.size());
    for (Value const& value : values)
      add(value);
  }
  void add(Buffer const& buffer) {
    add(buffer.dtype);
    add(buffer.elements);
    add(buffer.persistent);
  }
  void add(Tensor const& tensor) {
    add(tensor.buffer);
    add(tensor.offset);
    add(tensor.hop);
    add(tensor.hops);
    for (std::int64_t stride : tensor.stride)
      add(stride);
    add(tensor.shape);
    add(tensor.dtype);
    for (AxisPlacement placement : tensor.placement.along) {
      add(placement.kind);
      add(placement.dimension);
    }
  }
  void add(Op const& op) {
    add(op.kind);
    add(op.name);
    add(op.stream);
    add(op.reads);
    add(op.writes);
    add(op.sequence_length);
    add(op.context_shards);
    add(op.hop);
    add(op.scale);
    add(op.transposed);
    add(op.group.axes.bits());
    add(op.group.pipeline_ends);
    add(op.channel.what);
    add(op.channel.from);
    add(op.channel.to);
    add(op.micro_batch);
    add(op.host_sync);
    add(op.left_over);
    add(op.takes_over);
    add(op.waits);
    add(op.releases);
  }
  void add(LayerProgram const& layer) {
    add(layer.buffers);
    add(layer.tensors);
    for (SlotKind kind : slot_kinds)
      add(ops_of(layer, kind));
  }
  void add(Element const& element) {
    if (Op const* op = std::get_if<Op>(&element))
      return add(*op);
    auto const& slot = std::get<Slot>(element);
    add(slot.kind);
    add(slot.micro_batch);
    add(slot.first);
    add(slot.last);
  }
  void add(StageProgram const& stage) {
    add(stage.buffers);
    add(stage.tensors);
    add(stage.elements);
    for (StageLayer const& layer : stage.layers)
      add(layer.program);
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

} // namespace

std::uint64_t hash_of(Program const& program) {
  Hash hash;
  hash.add(plan_json(program.plan));
  hash.add(program.layer_programs);
  hash.add(program.stages);
  return hash.value();
}

} // namespace foreplan

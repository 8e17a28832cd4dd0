// Strong index types: a Stage cannot be passed where a MicroBatch is expected.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace foreplan {

// A whole number that counts things of one kind. Conversions from and to integers are explicit.
template <class Tag>
class Index {
public:
  constexpr Index() = default;
  constexpr explicit Index(std::int64_t value) : value_(static_cast<std::int32_t>(value)) {}
  [[nodiscard]] constexpr std::int32_t value() const { return value_; }
  [[nodiscard]] constexpr std::size_t index() const { return static_cast<std::size_t>(value_); }
  constexpr Index& operator++() {
    ++value_;
    return *this;
  }
  friend constexpr auto operator<=>(Index, Index) = default;

private:
  std::int32_t value_ = 0;
};

using Rank = Index<struct RankTag>;             // of the whole job, 0-based
using Stage = Index<struct StageTag>;           // of the pipeline
using Chunk = Index<struct ChunkTag>;           // model chunk held by one stage (virtual pipeline stage), 0-based on it
using MicroBatch = Index<struct MicroBatchTag>; // of one step
using LayerId = Index<struct LayerTag>;         // of the model: 0 embedding, 1..L blocks, L+1 head
using OpId = Index<struct OpTag>;               // stable name of an op inside its layer program or stage program
using TensorId = Index<struct TensorTag>;       // position in the tensor table of a layer or stage program
using BufferId = Index<struct BufferTag>;       // position in the buffer table of a layer or stage program
using SlotId = Index<struct SlotTag>;           // position in the issue order of a stage program

} // namespace foreplan

template <class Tag>
struct std::hash<foreplan::Index<Tag>> {
  std::size_t operator()(foreplan::Index<Tag> index) const noexcept { return std::hash<std::int32_t>{}(index.value()); }
};

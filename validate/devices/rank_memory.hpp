// The memory of one rank: laid out as storage.hpp says, in bytes, with the initial weights and each step's data in it.
#pragma once

#include "interpreter/held_parameters.hpp"
#include "interpreter/storage.hpp"
#include "validate/devices/backend.hpp"
#include "validate/devices/drive.hpp"
#include "validate/devices/element.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace foreplan {

struct Unmap {
  std::size_t bytes = 0;
  void operator()(std::byte* begin) const;
};
using MappedBytes = std::unique_ptr<std::byte[], Unmap>;

struct RankMemory {
  Coordinate coordinate;
  Storage storage = Storage::as_planned;
  StageStorage layout; // in bytes
  MappedBytes bytes;
  std::unique_ptr<Drive> drive;  // what of it lives on drives: its addresses here are not used; none: nothing does
  std::vector<Operand> operands; // the layout's, at their places on this rank
  std::vector<Range> undefined;  // what holds no value when a step begins

  [[nodiscard]] ElementType type_of(Tensor const& tensor) const { return element_type(storage, tensor.dtype); }
  [[nodiscard]] std::byte* at(std::int64_t address) const { return bytes.get() + address; }
  void fetch_from_drive() const; // to those addresses, for whoever looks at all of it
};

// Bytes of the elements of each dtype in this storage, buffers aligned.
StorageUnits units_of(Storage storage);

// Memory with the initial weights of the seed; `progress` is called now and then. Throws std::runtime_error, with the number of bytes, when the machine has not as
// much.
RankMemory make_rank_memory(Program const& program, Coordinate coordinate, Storage storage, std::uint64_t seed,
                            std::function<void()> const& progress);

// The token ids and labels of a step (from 1).
void write_ids(Program const& program, RankMemory const& memory, std::uint64_t seed, int step);

// Fills bytes with what no op may use: NaN in every floating type.
void poison(RankMemory const& memory, Range range);

} // namespace foreplan

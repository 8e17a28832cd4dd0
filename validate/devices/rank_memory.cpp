#include "validate/devices/rank_memory.hpp"

#include "interpreter/data.hpp"
#include "program/token_layout.hpp"
#include "units/quantity.hpp"
#include "units/text.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include <sys/mman.h>

namespace foreplan {
namespace {

MappedBytes map_bytes(std::int64_t size) {
  auto const bytes = static_cast<std::size_t>(size);
  void* begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED)
    throw std::runtime_error(fmt::format("the {} that the plan needs on this rank cannot be had: {}",
                                         to_string(Bytes(static_cast<double>(size))), std::strerror(errno)));
  madvise(begin, bytes, MADV_HUGEPAGE); // fewer page faults; without it the run is only slower
  return {static_cast<std::byte*>(begin), Unmap{bytes}};
}

void bind(RankMemory& memory) {
  for (BoundOperand const& operand : memory.layout.operands)
    memory.operands.push_back({memory.at(operand.on(memory.coordinate)), operand.tensor});
}

// The parameter where it has a home of its own, the part that is this rank's, and its unrounded master. All else is zero.
void initialise(Program const& program, RankMemory const& memory, std::uint64_t seed,
                std::function<void()> const& progress) {
  StageProgram const& stage = program.stages[static_cast<std::size_t>(memory.coordinate.pp)];
  std::vector<Master> const masters = masters_of(program.plan, stage, memory.layout);
  for (HeldParameter const& held : held_parameters(program, stage)) {
    progress();
    std::vector<double> const values = initial_shard(seed, *held.parameter, held.layer, held.norm_weight,
                                                     memory.coordinate.tp);
    ElementType const type = element_type(memory.storage, stage.buffers[held.parameters.index()].dtype);
    std::int64_t const home = memory.layout.persistent[held.parameters.index()];
    for (std::size_t i = 0; home >= 0 && i < values.size(); ++i)
      store(memory.at(home), type, held.offset + static_cast<std::int64_t>(i), values[i]);
    for (Master const& master : masters) {
      MasterPart const part = part_of(held, master, memory.coordinate);
      for (BoundOperand const* operand : {&master.parameter, &master.master})
        for (std::int64_t i = 0; i < part.count; ++i)
          store(memory.at(operand->on(memory.coordinate)), memory.type_of(*operand->tensor), part.in_master + i,
                values[static_cast<std::size_t>(part.in_parameter + i)]);
    }
  }
}

// Moves what lives on drives to a file: whoever reads its memory finds nothing.
void move_to_drive(RankMemory& memory) {
  Range const range = memory.layout.drives;
  std::int64_t const bytes = range.end - range.begin;
  if (bytes == 0)
    return;
  memory.drive = std::make_unique<Drive>(drive_path(), bytes);
  memory.drive->write(0, memory.at(range.begin), bytes);
  poison(memory, range);
}

} // namespace

void RankMemory::fetch_from_drive() const {
  if (drive != nullptr)
    drive->read(0, at(layout.drives.begin), layout.drives.end - layout.drives.begin);
}

void Unmap::operator()(std::byte* begin) const { munmap(begin, bytes); }

StorageUnits units_of(Storage storage) {
  StorageUnits units{.alignment = buffer_alignment};
  for (int dtype = 0; dtype < dtype_count; ++dtype)
    units.of_element[static_cast<std::size_t>(dtype)] = size_of(element_type(storage, static_cast<DType>(dtype)));
  return units;
}

RankMemory make_rank_memory(Program const& program, Coordinate coordinate, Storage storage, std::uint64_t seed,
                            std::function<void()> const& progress) {
  RankMemory memory{.coordinate = coordinate,
                    .storage = storage,
                    .layout = {},
                    .bytes = {},
                    .drive = {},
                    .operands = {},
                    .undefined = {}};
  StageProgram const& stage = program.stages[static_cast<std::size_t>(coordinate.pp)];
  memory.layout = lay_out(program, stage, Reuse::same_size, units_of(storage));
  memory.bytes = map_bytes(memory.layout.size);
  bind(memory);
  memory.undefined = undefined_ranges(memory.layout, coordinate);
  initialise(program, memory, seed, progress);
  move_to_drive(memory);
  return memory;
}

void write_ids(Program const& program, RankMemory const& memory, std::uint64_t seed, int step) {
  Plan const& plan = program.plan;
  ElementType const type = element_type(memory.storage, DType::int32);
  std::byte* const tokens = memory.at(memory.layout.tokens);
  std::byte* const labels = memory.at(memory.layout.labels);
  int const data = data_index(plan, memory.coordinate);
  std::int64_t next = 0;
  for (std::int64_t micro_batch = 0; micro_batch < plan.micro_batches(); ++micro_batch)
    for (std::int64_t t = 0; t < plan.tokens(); ++t, ++next) {
      TokenPlace const place = token_place(t, plan.sequence_length, plan.cp, memory.coordinate.cp);
      std::int64_t const sequence = global_sequence(plan, data, micro_batch, place.sequence);
      auto const id = [&](std::int64_t at) {
        return static_cast<double>(token_id(seed, step, sequence, at, program.model.vocabulary));
      };
      store(tokens, type, next, id(place.position));
      store(labels, type, next, id(place.position + 1));
    }
}

void poison(RankMemory const& memory, Range range) {
  std::memset(memory.at(range.begin), 0xff, static_cast<std::size_t>(range.end - range.begin)); // a quiet NaN
}

} // namespace foreplan

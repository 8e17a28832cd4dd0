#include "validate/devices/transport.hpp"

#include "validate/devices/cpu/reduce_bf16.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

namespace foreplan {
namespace {

[[noreturn]] void refuse(std::string const& what) { throw std::runtime_error(what); }

void require(int result, char const* call) {
  if (result == MPI_SUCCESS)
    return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(result, text, &length);
  refuse(fmt::format("{}: {}", call, std::string(text, static_cast<std::size_t>(length))));
}

MPI_Datatype mpi_type(ElementType type) {
  switch (type) {
    case ElementType::bf16:
    case ElementType::fp16: return MPI_UINT16_T;
    case ElementType::fp32: return MPI_FLOAT;
    case ElementType::int32: return MPI_INT32_T;
    case ElementType::uint8: return MPI_UINT8_T;
    case ElementType::fp64: return MPI_DOUBLE;
  }
  return MPI_DATATYPE_NULL;
}

// MPI knows no 16-bit floating types: their reductions as operations on 16-bit words.
template <float (*From)(std::uint16_t), std::uint16_t (*To)(float), bool maximum>
void reduce_words(void* in, void* in_out, int* count, MPI_Datatype*) {
  auto const* a = static_cast<std::uint16_t const*>(in);
  auto* b = static_cast<std::uint16_t*>(in_out);
  for (int i = 0; i < *count; ++i) {
    float const x = From(a[i]), y = From(b[i]);
    b[i] = maximum ? To(x > y ? x : y) : To(x + y);
  }
}

// The same for bf16, by SIMD: the sum of gradients in bf16 is a good part of a small machine's step.
template <bool maximum>
void reduce_bf16(void* in, void* in_out, int* count, MPI_Datatype*) {
  cpu::reduce_bf16(static_cast<std::uint16_t const*>(in), static_cast<std::uint16_t*>(in_out), *count, maximum);
}

MPI_Op make_operation(MPI_User_function* function) {
  MPI_Op operation = MPI_OP_NULL;
  require(MPI_Op_create(function, 1, &operation), "MPI_Op_create");
  return operation;
}

MPI_Op mpi_operation(ElementType type, bool maximum) {
  if (type == ElementType::bf16) { // made at the first use, for as long as the process lives
    static MPI_Op const sum = make_operation(reduce_bf16<false>);
    static MPI_Op const most = make_operation(reduce_bf16<true>);
    return maximum ? most : sum;
  }
  if (type == ElementType::fp16) {
    static MPI_Op const sum = make_operation(reduce_words<from_fp16, to_fp16, false>);
    static MPI_Op const most = make_operation(reduce_words<from_fp16, to_fp16, true>);
    return maximum ? most : sum;
  }
  return maximum ? MPI_MAX : MPI_SUM;
}

// Between two looks at a request. Other threads of this machine may need the core: after some 20 us of yielding (what a
// peer that is there already takes to answer) the thread sleeps, ever longer, up to a tenth of what the shortest
// op that is worth measuring takes.
void pause(int looks) {
  constexpr int yields = 40;
  if (looks < yields)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(std::min(20, 2 + (looks - yields) / 8)));
}

void drive(MPI_Request request) {
  int done = 0;
  for (int looks = 0;; ++looks) {
    require(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0)
      return;
    pause(looks);
  }
}

int count_of(std::int64_t elements) {
  if (elements > std::numeric_limits<int>::max())
    refuse(fmt::format("{} elements in one message; MPI counts to {}", elements, std::numeric_limits<int>::max()));
  return static_cast<int>(elements);
}

struct Members {
  int count = 0;
  int self = 0;
};
Members members_of(MPI_Comm communicator) {
  Members members;
  MPI_Comm_size(communicator, &members.count);
  MPI_Comm_rank(communicator, &members.self);
  return members;
}

void all_reduce(Op const& op, ElementType type, Operand const& source, Operand const& target, MPI_Comm communicator) {
  if (source.elements() != target.elements())
    refuse("the sizes do not fit");
  MPI_Request request = MPI_REQUEST_NULL;
  require(MPI_Iallreduce(source.data == target.data ? MPI_IN_PLACE : source.data, target.data,
                         count_of(source.elements()), mpi_type(type),
                         mpi_operation(type, takes_maximum(op, *source.tensor)), communicator, &request),
          "MPI_Iallreduce");
  drive(request);
}

void all_gather(ElementType type, Operand const& source, Operand const& target, MPI_Comm communicator) {
  Members const members = members_of(communicator);
  if (source.elements() * members.count != target.elements())
    refuse("the sizes do not fit");
  std::byte const* const own = target.as<std::byte>() + members.self * source.elements() * size_of(type);
  MPI_Request request = MPI_REQUEST_NULL;
  int const count = count_of(source.elements());
  require(MPI_Iallgather(source.data == own ? MPI_IN_PLACE : source.data, count, mpi_type(type), target.data, count,
                         mpi_type(type), communicator, &request),
          "MPI_Iallgather");
  drive(request);
}

void all_to_all(ElementType type, Operand const& source, Operand const& target, MPI_Comm communicator) {
  int const members = members_of(communicator).count;
  if (source.elements() != target.elements() || source.elements() % members != 0)
    refuse("the sizes do not fit");
  int const count = count_of(source.elements() / members);
  MPI_Request request = MPI_REQUEST_NULL;
  require(MPI_Ialltoall(source.data, count, mpi_type(type), target.data, count, mpi_type(type), communicator, &request),
          "MPI_Ialltoall");
  drive(request);
}

void ring_shift(ElementType type, Operand const& source, Operand const& target, MPI_Comm communicator) {
  Members const members = members_of(communicator);
  int const next = (members.self + 1) % members.count, before = (members.self + members.count - 1) % members.count;
  MPI_Request sent = MPI_REQUEST_NULL, received = MPI_REQUEST_NULL;
  require(MPI_Irecv(target.data, count_of(target.elements()), mpi_type(type), before, 0, communicator, &received),
          "MPI_Irecv");
  require(MPI_Isend(source.data, count_of(source.elements()), mpi_type(type), next, 0, communicator, &sent),
          "MPI_Isend");
  drive(received);
  drive(sent);
}

bool overlap(Operand const& a, Operand const& b, ElementType type) {
  std::byte const *const first = a.as<std::byte>(), *const second = b.as<std::byte>();
  return first < second + b.elements() * size_of(type) && second < first + a.elements() * size_of(type);
}

void reduce_scatter(Op const& op, ElementType type, Operand const& source, Operand const& target,
                    MPI_Comm communicator) {
  if (target.elements() * members_of(communicator).count != source.elements())
    refuse("the sizes do not fit");
  // A shard in the place where it lies in the whole: MPI knows no such thing.
  thread_local std::vector<std::byte> aside;
  bool const in_place = overlap(source, target, type);
  auto const bytes = static_cast<std::size_t>(target.elements() * size_of(type));
  if (in_place)
    aside.resize(bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  require(MPI_Ireduce_scatter_block(source.data, in_place ? aside.data() : target.data, count_of(target.elements()),
                                    mpi_type(type), mpi_operation(type, takes_maximum(op, *source.tensor)),
                                    communicator, &request),
          "MPI_Ireduce_scatter_block");
  drive(request);
  if (in_place)
    std::memcpy(target.data, aside.data(), bytes);
}

void send(ElementType type, Operand const& source, Endpoint const& to) {
  MPI_Request request = MPI_REQUEST_NULL;
  require(
      MPI_Isend(source.data, count_of(source.elements()), mpi_type(type), to.peer, to.tag, to.communicator, &request),
      "MPI_Isend");
  drive(request);
}

void receive(ElementType type, Operand const& target, Endpoint const& from) {
  MPI_Request request = MPI_REQUEST_NULL;
  require(MPI_Irecv(target.data, count_of(target.elements()), mpi_type(type), from.peer, from.tag, from.communicator,
                    &request),
          "MPI_Irecv");
  drive(request);
}

} // namespace

void communicate(Op const& op, Storage storage, Operand const* source, Operand const* target,
                 Endpoint const& endpoint) {
  ElementType const type = element_type(storage, (source != nullptr ? source : target)->tensor->dtype);
  switch (op.kind) {
    case OpKind::all_reduce: return all_reduce(op, type, *source, *target, endpoint.communicator);
    case OpKind::all_gather: return all_gather(type, *source, *target, endpoint.communicator);
    case OpKind::reduce_scatter: return reduce_scatter(op, type, *source, *target, endpoint.communicator);
    case OpKind::all_to_all: return all_to_all(type, *source, *target, endpoint.communicator);
    case OpKind::ring_shift: return ring_shift(type, *source, *target, endpoint.communicator);
    case OpKind::send: return send(type, *source, endpoint);
    case OpKind::receive: return receive(type, *target, endpoint);
    default: refuse(fmt::format("'{}' is no communication", to_string(op.kind)));
  }
}

} // namespace foreplan

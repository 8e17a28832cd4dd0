#include "validate/devices/clock.hpp"

#include <chrono>
#include <limits>
#include <thread>

namespace foreplan {
namespace {

constexpr int round_trips = 16;

// Of `leader` 0: answers nothing. Both sides take part; the result is only the other's to use.
double offset_to_first(MPI_Comm leaders, int self, int other) {
  double shortest = std::numeric_limits<double>::infinity();
  double offset = 0;
  for (int i = 0; i < round_trips; ++i) {
    double first_time = 0;
    if (self == 0) {
      MPI_Recv(nullptr, 0, MPI_BYTE, other, 0, leaders, MPI_STATUS_IGNORE);
      first_time = now();
      MPI_Send(&first_time, 1, MPI_DOUBLE, other, 0, leaders);
    } else {
      double const sent = now();
      MPI_Send(nullptr, 0, MPI_BYTE, 0, 0, leaders);
      MPI_Recv(&first_time, 1, MPI_DOUBLE, 0, 0, leaders, MPI_STATUS_IGNORE);
      double const back = now();
      if (back - sent < shortest) {
        shortest = back - sent;
        offset = (sent + back) / 2 - first_time;
      }
    }
  }
  return offset;
}

} // namespace

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double clock_offset(MPI_Comm world, MPI_Comm node) {
  int rank = 0, rank_of_node = 0;
  MPI_Comm_rank(world, &rank);
  MPI_Comm_rank(node, &rank_of_node);
  MPI_Comm leaders = MPI_COMM_NULL;
  MPI_Comm_split(world, rank_of_node == 0 ? 0 : MPI_UNDEFINED, rank, &leaders);
  double offset = 0;
  if (leaders != MPI_COMM_NULL) {
    int self = 0, count = 0;
    MPI_Comm_rank(leaders, &self);
    MPI_Comm_size(leaders, &count);
    for (int other = 1; other < count; ++other)
      if (self == 0 || self == other)
        offset = offset_to_first(leaders, self, other);
    if (self == 0)
      offset = 0;
    MPI_Comm_free(&leaders);
  }
  MPI_Bcast(&offset, 1, MPI_DOUBLE, 0, node);
  return offset;
}

double start_together(MPI_Comm world, double offset) {
  constexpr double notice = 1e-3; // for the moment to be known everywhere before it comes
  double moment = now() + notice; // rank 0's
  MPI_Bcast(&moment, 1, MPI_DOUBLE, 0, world);
  double const own = moment + offset;
  while (now() < own)
    std::this_thread::yield();
  return own;
}

} // namespace foreplan

#include "validate/devices/mpi_session.hpp"

#include <csignal>
#include <stdexcept>

#include <mpi.h>
#include <sys/prctl.h>

namespace foreplan {

MpiSession::MpiSession(int& argc, char**& argv) {
  sigset_t terminate;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &terminate, nullptr);
  prctl(PR_SET_TIMERSLACK, 1000UL); // nanoseconds: a thread that sleeps for microseconds is not late by 50 more
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided < MPI_THREAD_MULTIPLE)
    throw std::runtime_error("this MPI cannot be called by several threads (MPI_THREAD_MULTIPLE)");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

MpiSession::~MpiSession() { MPI_Finalize(); }

} // namespace foreplan

// The measurements behind a profile of this machine, as rows of text.
//   kernel,KIND,DTYPE,FLOPS,BYTES,SECONDS            an op in a training step of its own, all ranks running one each
//   communication,KIND,DTYPE,MEMBERS,WIRE,SECONDS    all ranks; bytes that a member sends
//   kernel_gap,SECONDS                               between two ops of a stream
//   communication_gap,SECONDS                        for each communication that compute waits for, on top
//   triad|copy|file_read|file_write,RATE             bytes/s of one rank while all do the same
//   base_memory,BYTES                                of a process that holds no tensors yet
//   versions,TEXT                                    of the libraries
//   file,HOW                                         the way that files are read and written
#pragma once

#include "validate/devices/job.hpp"

#include <string>

namespace foreplan {

// Collective over MPI_COMM_WORLD; the rows on rank 0. Prints what it is at to stderr. `quick`: bf16 only, few shapes.
std::string run_suite(Job& job, int threads, std::string const& scratch, bool quick);

} // namespace foreplan

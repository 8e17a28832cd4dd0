// Loops over the threads of one rank. The number of threads is OpenMP's for the calling thread, as it is oneDNN's.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>

namespace foreplan::cpu {

// Calls body(begin, end) for parts of [0, count), one a thread, each of at least `grain` but the last; the caller's
// thread alone where there is too little. Parts begin at multiples of `grain`. Exceptions reach the caller.
template <class Body>
void parallel_ranges(std::int64_t count, std::int64_t grain, Body const& body) {
  std::int64_t const grains = (count + grain - 1) / grain;
  auto const threads = static_cast<int>(std::min<std::int64_t>(omp_in_parallel() ? 1 : omp_get_max_threads(), grains));
  if (threads <= 1) {
    if (count > 0)
      body(std::int64_t{0}, count);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel num_threads(threads)
  {
    std::int64_t const thread = omp_get_thread_num();
    std::int64_t const begin = grains * thread / threads * grain;
    std::int64_t const end = std::min(count, grains * (thread + 1) / threads * grain);
    try {
      if (begin < end)
        body(begin, end);
    } catch (...) {
#pragma omp critical
      error = std::current_exception();
    }
  }
  if (error)
    std::rethrow_exception(error);
}

// Calls body(i) for every i in [0, count), on whichever thread is free.
template <class Body>
void parallel_items(std::int64_t count, Body const& body) {
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic) if (!omp_in_parallel())
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      body(i);
    } catch (...) {
#pragma omp critical
      error = std::current_exception();
    }
  }
  if (error)
    std::rethrow_exception(error);
}

} // namespace foreplan::cpu

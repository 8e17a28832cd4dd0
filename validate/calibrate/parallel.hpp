// The same work for many numbers, on as many threads as the machine has.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace foreplan {

template <class Work>
void in_parallel(std::size_t count, Work const& work) {
  std::atomic<std::size_t> next = 0;
  auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++)
      work(i);
  };
  std::vector<std::jthread> threads;
  for (unsigned t = 1; t < std::max(1U, std::thread::hardware_concurrency()); ++t)
    threads.emplace_back(run);
  run();
}

} // namespace foreplan

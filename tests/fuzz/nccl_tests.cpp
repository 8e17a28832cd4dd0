#include "interop/nccl_tests.hpp"

#include "io/input_error.hpp"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

using namespace foreplan;

// Logs of nccl-tests and rccl-tests are no JSON files: text, JSON and CSV, with whatever mpirun put in between.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  try {
    for (NcclTestsRun const& run : read_nccl_tests_text({reinterpret_cast<char const*>(data), size}, "log.txt"))
      for (NcclTestsPoint const& point : run.points)
        for (std::optional<double> const& seconds : {point.out_of_place, point.in_place})
          if (!(point.bytes >= 0) || (seconds && !(*seconds > 0 && std::isfinite(*seconds))) || run.ranks < 0)
            std::abort();
  } catch (InputError const& error) {
    if (std::strpbrk(error.what(), "\n\r") != nullptr)
      std::abort();
  }
  return 0;
}

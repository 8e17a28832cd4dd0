// Files as NVMe, and copies of memory.
#include "tests/catch.hpp"
#include "validate/devices/cpu/transfers.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>

#include <unistd.h>

using namespace foreplan::cpu;

namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

std::unique_ptr<char, Free> aligned(std::int64_t bytes) {
  return std::unique_ptr<char, Free>(
      static_cast<char*>(std::aligned_alloc(file_alignment, static_cast<std::size_t>(bytes))));
}

} // namespace

TEST_CASE("a storage file gives back what was written, by blocks and at offsets", "[devices]") {
  constexpr std::int64_t bytes = (std::int64_t{9} << 20) + 2 * file_alignment; // more than the requests in flight hold
  auto const out = aligned(bytes), back = aligned(bytes);
  std::iota(out.get(), out.get() + bytes, char{0});
  std::string const path =
      (std::filesystem::temp_directory_path() / ("foreplan-test-" + std::to_string(getpid()))).string();
  {
    StorageFile file(path, bytes);
    INFO(file.how());
    file.write(0, out.get(), bytes);
    file.read(0, back.get(), bytes);
    CHECK(std::equal(out.get(), out.get() + bytes, back.get()));
    file.write(file_alignment, out.get(), file_alignment);
    file.read(0, back.get(), 2 * file_alignment);
    CHECK(std::equal(out.get(), out.get() + file_alignment, back.get() + file_alignment));
    CHECK_THROWS_WITH(file.read(1, back.get(), file_alignment), Catch::Contains("unaligned") && Catch::Contains(path));
    CHECK_THROWS_WITH(file.read(bytes, back.get(), file_alignment), Catch::Contains("cannot read '" + path + "'"));
  }
  CHECK(!std::filesystem::exists(path));
  CHECK_THROWS_WITH(StorageFile("/no/such/folder/file", bytes),
                    Catch::Contains("cannot create '/no/such/folder/file'"));
}

TEST_CASE("copies of memory", "[devices]") {
  constexpr std::int64_t bytes = (std::int64_t{5} << 20) + 3;
  auto const from = aligned(bytes / file_alignment * file_alignment + file_alignment),
             to = aligned(bytes / file_alignment * file_alignment + file_alignment);
  std::iota(from.get(), from.get() + bytes, char{1});
  copy_memory(from.get(), to.get(), bytes);
  CHECK(std::equal(from.get(), from.get() + bytes, to.get()));
}

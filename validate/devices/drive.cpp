#include "validate/devices/drive.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include <unistd.h>

namespace foreplan {
namespace {

constexpr std::int64_t block = cpu::file_alignment;

std::int64_t down(std::int64_t offset) { return offset / block * block; }
std::int64_t up(std::int64_t offset) { return down(offset + block - 1); }

} // namespace

void Drive::Free::operator()(std::byte* begin) const { std::free(begin); } // NOLINT: of aligned_alloc

Drive::Drive(std::string path, std::int64_t bytes) : file_(std::move(path), up(bytes)) {}

std::byte* Drive::fetch(std::int64_t offset, std::int64_t bytes) {
  std::int64_t const begin = down(offset), size = up(offset + bytes) - begin;
  if (size > capacity_) {
    blocks_.reset(
        static_cast<std::byte*>(std::aligned_alloc(static_cast<std::size_t>(block), static_cast<std::size_t>(size))));
    if (blocks_ == nullptr)
      throw std::bad_alloc();
    capacity_ = size;
  }
  file_.read(begin, blocks_.get(), size);
  return blocks_.get() + (offset - begin);
}

void Drive::read(std::int64_t offset, void* to, std::int64_t bytes) {
  std::lock_guard const lock(in_use_);
  std::memcpy(to, fetch(offset, bytes), static_cast<std::size_t>(bytes));
}

void Drive::write(std::int64_t offset, void const* from, std::int64_t bytes) {
  std::lock_guard const lock(in_use_);
  std::memcpy(fetch(offset, bytes), from,
              static_cast<std::size_t>(bytes)); // the first and the last block may hold more
  file_.write(down(offset), blocks_.get(), up(offset + bytes) - down(offset));
}

std::string drive_path() {
  char const* const folder = std::getenv("TMPDIR");
  return fmt::format("{}/foreplan-drive-{}", folder != nullptr ? folder : "/tmp", getpid());
}

} // namespace foreplan

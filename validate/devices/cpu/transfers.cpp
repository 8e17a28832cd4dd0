#include "validate/devices/cpu/transfers.hpp"

#include "validate/devices/cpu/parallel.hpp"

#include <fcntl.h>
#include <unistd.h>

#ifdef FOREPLAN_IO_URING
#include <liburing.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace foreplan::cpu {

namespace {

constexpr std::int64_t block = std::int64_t{1} << 20; // bytes of one request
constexpr unsigned in_flight = 8;                     // requests

} // namespace

void copy_memory(void const* from, void* to, std::int64_t bytes) {
  parallel_ranges(bytes, block, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<char const*>(from) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

#ifdef FOREPLAN_IO_URING
struct StorageFile::Ring {
  io_uring ring{};
};
#else
struct StorageFile::Ring {};
#endif

StorageFile::StorageFile(std::string path, std::int64_t bytes) : path_(std::move(path)) {
  constexpr int flags = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC;
  constexpr mode_t owner_only = 0600;
  descriptor_ = open(path_.c_str(), flags | O_DIRECT, owner_only);
  direct_ = descriptor_ >= 0;
  if (!direct_)
    descriptor_ = open(path_.c_str(), flags, owner_only);
  if (descriptor_ < 0)
    fail("create", errno);
  if (int const error = posix_fallocate(descriptor_, 0, bytes); error != 0) {
    close(descriptor_);
    unlink(path_.c_str());
    fail("reserve " + std::to_string(bytes) + " bytes in", error);
  }
#ifdef FOREPLAN_IO_URING
  ring_ = new Ring;
  if (io_uring_queue_init(in_flight, &ring_->ring, 0) < 0) { // forbidden in many containers
    delete ring_;
    ring_ = nullptr;
  }
#endif
}

StorageFile::~StorageFile() {
#ifdef FOREPLAN_IO_URING
  if (ring_ != nullptr)
    io_uring_queue_exit(&ring_->ring);
#endif
  delete ring_;
  close(descriptor_);
  unlink(path_.c_str());
}

void StorageFile::write(std::int64_t offset, void const* from, std::int64_t bytes) {
  transfer(true, offset, static_cast<char*>(const_cast<void*>(from)), bytes); // NOLINT: only read from
}

void StorageFile::read(std::int64_t offset, void* to, std::int64_t bytes) {
  transfer(false, offset, static_cast<char*>(to), bytes);
}

std::string StorageFile::how() const {
  return std::string(ring_ != nullptr ? "io_uring" : "pread and pwrite (no io_uring here)") +
         (direct_ ? ", O_DIRECT" : ", through the page cache (no O_DIRECT here)");
}

void StorageFile::fail(std::string const& what, int error) const {
  throw std::runtime_error("cannot " + what + " '" + path_ + "': " + std::strerror(error));
}

void StorageFile::transfer(bool writes, std::int64_t offset, char* memory, std::int64_t bytes) {
  if (offset % file_alignment != 0 || bytes % file_alignment != 0 ||
      reinterpret_cast<std::uintptr_t>(memory) % file_alignment != 0)
    fail(writes ? "write unaligned blocks to" : "read unaligned blocks of", EINVAL);
  if (ring_ != nullptr)
    transfer_by_ring(writes, offset, memory, bytes);
  else
    transfer_by_calls(writes, offset, memory, bytes);
}

void StorageFile::transfer_by_calls(bool writes, std::int64_t offset, char* memory, std::int64_t bytes) const {
  while (bytes > 0) {
    auto const count = static_cast<std::size_t>(std::min(bytes, block));
    ssize_t const done = writes ? pwrite(descriptor_, memory, count, offset)
                                : pread(descriptor_, memory, count, offset);
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0)
      fail(writes ? "write" : "read", done < 0 ? errno : EIO);
    offset += done;
    memory += done;
    bytes -= done;
  }
}

#ifdef FOREPLAN_IO_URING
void StorageFile::transfer_by_ring(bool writes, std::int64_t offset, char* memory, std::int64_t bytes) {
  io_uring& ring = ring_->ring;
  std::int64_t submitted = 0;
  int error = 0;
  for (unsigned flying = 0; submitted < bytes || flying > 0;) {
    for (; submitted < bytes && flying < in_flight && error == 0; ++flying) {
      auto const count = static_cast<unsigned>(std::min(bytes - submitted, block));
      io_uring_sqe* entry = io_uring_get_sqe(&ring);
      auto const at = static_cast<std::uint64_t>(offset + submitted);
      if (writes)
        io_uring_prep_write(entry, descriptor_, memory + submitted, count, at);
      else
        io_uring_prep_read(entry, descriptor_, memory + submitted, count, at);
      io_uring_sqe_set_data64(entry, count);
      submitted += count;
    }
    if (flying == 0)
      break; // after an error
    io_uring_submit(&ring);
    io_uring_cqe* done = nullptr;
    int const waited = io_uring_wait_cqe(&ring, &done);
    if (waited == -EINTR)
      continue;
    if (waited < 0)
      fail("wait for", -waited);
    if (done->res < 0)
      error = -done->res;
    else if (static_cast<std::uint64_t>(done->res) != io_uring_cqe_get_data64(done))
      error = EIO; // blocks are whole
    io_uring_cqe_seen(&ring, done);
    --flying;
  }
  if (error != 0)
    fail(writes ? "write" : "read", error);
}
#else
void StorageFile::transfer_by_ring(bool writes, std::int64_t offset, char* memory, std::int64_t bytes) {
  transfer_by_calls(writes, offset, memory, bytes);
}
#endif

} // namespace foreplan::cpu

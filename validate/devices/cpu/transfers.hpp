// Copies between the host's and the device's pool (on a CPU both are memory), and files as NVMe storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace foreplan::cpu {

// On all threads of the caller's OpenMP setting.
void copy_memory(void const* from, void* to, std::int64_t bytes);

inline constexpr std::int64_t file_alignment = 4096; // of offsets, sizes and addresses, so that O_DIRECT takes them

// A file of a fixed size that stands for a part of a drive. Transfers go by io_uring, several blocks in flight, past the
// page cache (O_DIRECT) where the file system can; by pread and pwrite where io_uring is forbidden. The file is
// removed at the end. Members throw std::runtime_error with path, operation and cause. One thread at a time.
class StorageFile {
public:
  StorageFile(std::string path, std::int64_t bytes);
  ~StorageFile();
  StorageFile(StorageFile const&) = delete;
  StorageFile& operator=(StorageFile const&) = delete;

  void write(std::int64_t offset, void const* from, std::int64_t bytes);
  void read(std::int64_t offset, void* to, std::int64_t bytes);
  [[nodiscard]] std::string how() const; // "io_uring, O_DIRECT"

private:
  struct Ring;
  void transfer(bool writes, std::int64_t offset, char* memory, std::int64_t bytes);
  void transfer_by_calls(bool writes, std::int64_t offset, char* memory, std::int64_t bytes) const;
  void transfer_by_ring(bool writes, std::int64_t offset, char* memory, std::int64_t bytes);
  [[noreturn]] void fail(std::string const& what, int error) const;

  std::string path_;
  int descriptor_ = -1;
  bool direct_ = false;
  Ring* ring_ = nullptr; // nullptr: io_uring is not there
};

} // namespace foreplan::cpu

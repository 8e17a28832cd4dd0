// A rank's part of the drives: a file, read and written past the page cache where the file system can.
#pragma once

#include "validate/devices/cpu/transfers.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace foreplan {

class Drive {
public:
  // Throws std::runtime_error where the file cannot be made.
  Drive(std::string path, std::int64_t bytes);

  // Any offsets, sizes and addresses: through a buffer of whole blocks. From several threads, one after the other.
  void read(std::int64_t offset, void* to, std::int64_t bytes);
  void write(std::int64_t offset, void const* from, std::int64_t bytes);

private:
  struct Free {
    void operator()(std::byte* begin) const;
  };
  // Reads the whole blocks that cover the range into the buffer; where the range begins in it.
  std::byte* fetch(std::int64_t offset, std::int64_t bytes);

  cpu::StorageFile file_;
  std::mutex in_use_;
  std::unique_ptr<std::byte, Free> blocks_;
  std::int64_t capacity_ = 0; // of the buffer
};

// Where this process's file may be: under TMPDIR, or /tmp.
std::string drive_path();

} // namespace foreplan

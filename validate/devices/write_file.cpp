#include "validate/devices/write_file.hpp"

#include "io/input_error.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <unistd.h>

namespace foreplan {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(std::string const& path) {
  fs::path const folder = fs::path(path).parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

[[noreturn]] void refuse(std::string const& path, std::string const& option, std::string const& why) {
  throw InputError(fmt::format("{} {}: cannot be written: {}", option, path, why));
}

// Whether what was written has reached the disk: a full one may say so only now.
bool reaches_disk(std::string const& path) {
  int const file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return false;
  bool const good = fsync(file) == 0;
  int const error = errno;
  close(file);
  errno = error;
  return good;
}

} // namespace

void require_writable(std::string const& path, std::string const& option) {
  fs::path const folder = folder_of(path);
  if (!fs::is_directory(folder))
    refuse(path, option, fmt::format("there is no folder {}", folder.string()));
  if (fs::is_directory(path))
    refuse(path, option, "it is a folder");
  if (access(folder.c_str(), W_OK) != 0)
    refuse(path, option, std::strerror(errno));
}

void write_file(std::string const& path, std::string const& option, std::function<void(std::ostream&)> const& write) {
  require_writable(path, option);
  std::string const beside = fmt::format("{}.{}.part", path, getpid());
  errno = 0;
  std::ofstream file(beside, std::ios::binary);
  write(file);
  file.close();
  if (!file || !reaches_disk(beside) || rename(beside.c_str(), path.c_str()) != 0) {
    std::string const why = errno != 0 ? std::strerror(errno) : "unknown error";
    unlink(beside.c_str());
    refuse(path, option, why);
  }
}

} // namespace foreplan

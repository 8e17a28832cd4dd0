// Files that are there whole or not at all.
#pragma once

#include <functional>
#include <ostream>
#include <string>

namespace foreplan {

// Throws InputError when a file of this name could not be written: no folder, no permission. To be asked before hours of work.
void require_writable(std::string const& path, std::string const& option);

// Writes beside the path, and renames when all is on the disk. Throws InputError, and leaves nothing behind, when that fails.
void write_file(std::string const& path, std::string const& option, std::function<void(std::ostream&)> const& write);

} // namespace foreplan

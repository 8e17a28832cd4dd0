// What the user gave cannot be used: a file, a value in it, or an argument. what() is one line that names all three and
// the rule, to be printed as it stands.
#pragma once

#include <stdexcept>

namespace foreplan {

class InputError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

} // namespace foreplan

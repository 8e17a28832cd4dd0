// A number that tells programs apart, so that ranks that were started with different ones do not wait for each other.
#pragma once

#include "program/program.hpp"

namespace foreplan {

// Of all that decides what ranks do together: model, plan, ops, tensors, buffers. Not of addresses or pointers.
std::uint64_t hash_of(Program const& program);

} // namespace foreplan

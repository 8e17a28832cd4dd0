// Waits and releases, derived from what ops read and write. Passes choose which ops there are, on which stream, in which
// order the host issues them; where an event must be waited for follows. Only waits that no other order implies are put in.
//
// Rules (the verifier checks them independently):
//  - reads follow the last write, writes follow the last write and all reads since;
//  - temporaries come from a pool that the compute stream orders, as in stream-ordered allocators: an op on another stream
//    that touches one first waits for the compute op issued last, and a release stands on a compute op that follows all
//    uses;
//  - the step's last op follows everything.
#pragma once

#include "program/program.hpp"

namespace foreplan {

void synchronize(LayerProgram& layer);
void synchronize(Program const& program, StageProgram& stage);

} // namespace foreplan

// How far a step may lie from its prediction, as far as kernels and collectives that were measured say.
#pragma once

#include "engine/fold.hpp"
#include "timeline/critical_path.hpp"

namespace foreplan {

struct StepBand {
  double relative = 0; // two thirds of measured steps are expected within it; 0: less than half is known
  double known = 0;    // share of the step whose durations have a band; the rest is taken to err alike
};

// From the seconds of each class of ops on the critical path, and the bands of their demands (Demand::band: what
// left-out measurements deviate by). Errors of one class (matrix products; attention; memory-bound kernels; collectives and
// transfers) have one cause and are taken as fully correlated, those of different classes as independent:
//   relative = sqrt(sum over classes of (seconds * band)^2) / seconds of all classes with a band
// It speaks of the durations of kernels and collectives alone: neither of the host nor of a framework that runs
// otherwise than the program says.
StepBand step_band(Folding const& folding, CriticalPath const& path);

} // namespace foreplan

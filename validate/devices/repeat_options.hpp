// How often a step is measured.
#pragma once

namespace foreplan {

struct RepeatOptions {
  int warm_up = 2; // steps that are not measured: first touch of memory, libraries that prepare themselves
  int least = 5;   // repeats
  int most = 30;
  double width = 0.02; // enough: the median's interval reaches no further from it than this share of it
};

} // namespace foreplan

// Does a program still compute the right training step? For tests that compare plans, and for those that damage a
// program and ask whether anybody would notice.
#pragma once

#include "interpreter/interpreter.hpp"

namespace foreplan {

// What a number of steps leave behind.
struct Reference {
  double loss = 0; // of the last step
  Weights weights;
  int steps = 1;
};

// The right answer: `program` in program order, in fp64, for `steps` steps from the initial weights.
Reference reference_of(Program const& program, TrainingParameters const& training, int steps = 1);

// The larger of: relative difference of the losses; over the parameters, |weights - reference| / |reference| in the
// Euclidean norm (a parameter has no scale of its own for each element: those near zero carry the rounding of the sums
// that all elements share). Infinite when anything is NaN or the parameters are not the same.
double relative_difference(Reference const& result, Reference const& reference);

// Whether the steps of the program, in any of `orders` adversarial orders (half of them in each layout of the memory,
// see Reuse), get stuck, read outside their buffers, or give a loss or weights, on any rank, that differ by more than
// `tolerance`. Stops at the first that does. What it cannot see: dtypes, since all storage is one scalar type.
bool differs(Program const& program, Reference const& reference, TrainingParameters const& training, int orders = 20,
             double tolerance = 1e-9);

} // namespace foreplan

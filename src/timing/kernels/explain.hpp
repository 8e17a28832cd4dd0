// What a product's time is made of, in words for `foreplan explain`.
#pragma once

#include "timing/kernels/gemm.hpp"

#include <string>
#include <vector>

namespace foreplan {

// Lines: the limits, the measured products that lie nearest with their residuals, and the correction that follows.
std::string explain_product(KernelMachine const& machine, std::vector<ProductResidual> const& residuals,
                            GemmShape const& shape);

} // namespace foreplan

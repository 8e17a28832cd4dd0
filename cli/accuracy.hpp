// The halves of the commands about measurements, kernels and collectives.
#pragma once

#include <string>
#include <vector>

namespace foreplan {

int run_accuracy_kernels(std::vector<std::string> const& arguments);
int run_accuracy_collectives(std::vector<std::string> const& arguments);

} // namespace foreplan

// The plans whose programs are proved: small, and together with every strategy there is.
#pragma once

#include "model/model.hpp"
#include "plan/plan.hpp"

#include <string>
#include <vector>

namespace foreplan {

struct ProofCase {
  std::string name;
  Model model;
  Plan plan;
};

std::vector<ProofCase> proof_cases();

} // namespace foreplan

// Published ratios of Domino and Megatron-LM (DeepSpeed, blogs/deepspeed-domino): rows of published/ratios.csv.
#pragma once

#include "validate/calibrate/csv.hpp"
#include "validate/calibrate/ratios_accuracy.hpp"

#include <optional>
#include <string>

namespace foreplan {

// The trainers of the rows that are judged here.
bool is_of_domino(CsvRow const& row);

// Nothing, and why, where the row cannot be expressed.
std::optional<JudgedRatio> judged_domino_ratio(CsvRow const& row, std::string& why_not);

} // namespace foreplan

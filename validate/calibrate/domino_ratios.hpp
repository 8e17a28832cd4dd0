// Published ratios of Domino and Megatron-LM (DeepSpeed, blogs/deepspeed-domino): rows of published/ratios.csv.
#pragma once

#include "validate/calibrate/csv.hpp"
#include "validate/calibrate/ratios_accuracy.hpp"

#include <optional>
#include <string>
#include <vector>

namespace foreplan {

// The trainers of the rows that are judged here.
bool is_of_domino(CsvRow const& row);

// Nothing, and why, where the row cannot be expressed.
std::optional<JudgedRatio> judged_domino_ratio(CsvRow const& row, std::string& why_not);

// Of each pair of rows that give Domino's and Megatron-LM's throughput d and m relative to that without communication: the
// share of the communication that Domino hides, 1 - (1 / d - 1) / (1 / m - 1).
std::vector<JudgedRatio> hidden_shares(std::vector<JudgedRatio> const& rows);

} // namespace foreplan

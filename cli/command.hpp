// The table of commands. A command reads its own arguments and returns the process's exit code:
//   0 done, 1 the answer is no (nothing fits), 2 the input cannot be used (thrown as InputError)
#pragma once

#include <span>
#include <string>
#include <vector>

namespace foreplan {

struct Command {
  char const* name;
  char const* summary; // one line
  int (*run)(std::vector<std::string> const& arguments);
};

std::span<Command const> commands();

int run_plan(std::vector<std::string> const& arguments);
int run_simulate(std::vector<std::string> const& arguments);
int run_show(std::vector<std::string> const& arguments);
int run_fit(std::vector<std::string> const& arguments);
int run_compare(std::vector<std::string> const& arguments);
int run_explain(std::vector<std::string> const& arguments);
int run_accuracy(std::vector<std::string> const& arguments);
int run_calibrate(std::vector<std::string> const& arguments);
int run_validate(std::vector<std::string> const& arguments);

} // namespace foreplan

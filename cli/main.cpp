#include "cli/command.hpp"
#include "io/input_error.hpp"
#include "io/suggestion.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <iostream>

#include <unistd.h>

namespace foreplan {

namespace {

constexpr Command table[] = {
    {"plan", "find the best plan for a model on a cluster", run_plan},
    {"simulate", "predict one plan: step time, where it goes, memory", run_simulate},
    {"fit", "does a plan fit in memory, and if not, what makes it fit at which price", run_fit},
    {"compare", "why one plan is slower than another", run_compare},
    {"explain", "what one op of a plan costs, and from which numbers", run_explain},
    {"show", "print a model or a hardware profile as Foreplan understands it", run_show},
    {"accuracy", "how well measured kernels and collectives are predicted", run_accuracy},
    {"calibrate", "fit a hardware profile to measurements, or measure this machine", run_calibrate},
    {"validate", "run a plan on this machine and compare predicted with measured", run_validate},
};

void print_usage(std::ostream& out) {
  out << "foreplan: how to train a model on a cluster, how long a step takes, whether it fits, and why\n\n"
         "usage: foreplan COMMAND [OPTIONS]    (foreplan COMMAND --help lists them)\n\n";
  for (Command const& command : table)
    out << fmt::format("  {:<10} {}\n", command.name, command.summary);
  out << "\nexit codes: 0 done, 1 nothing fits, 2 the input cannot be used\n";
}

int run(std::vector<std::string> const& words) {
  if (words.empty() || words[0] == "--help" || words[0] == "help") {
    print_usage(words.empty() ? std::cerr : std::cout);
    return words.empty() ? 2 : 0;
  }
  std::vector<std::string_view> names;
  for (Command const& command : table) {
    if (words[0] == command.name)
      return command.run({words.begin() + 1, words.end()});
    names.emplace_back(command.name);
  }
  throw InputError(fmt::format("{}: no such command; {}", words[0], suggestion(words[0], names)));
}

} // namespace

std::span<Command const> commands() { return table; }

} // namespace foreplan

int main(int argc, char** argv) {
  int code = 0;
  try {
    code = foreplan::run({argv + 1, argv + argc});
  } catch (foreplan::InputError const& error) {
    std::cerr << "foreplan: " << error.what() << '\n';
    code = 2;
  } catch (std::exception const& error) {
    std::cerr << "foreplan: internal error, please report it: " << error.what() << '\n';
    code = 3;
  }
  std::cout.flush();
  std::fflush(nullptr);
  _exit(code); // SimGrid's engine must not be taken down by static destructors
}

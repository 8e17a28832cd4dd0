// The options that say which plan, model and cluster: the same for every command about one plan.
#pragma once

#include "cli/arguments.hpp"
#include "cluster/cluster.hpp"
#include "io/input_error.hpp"
#include "model/model.hpp"
#include "plan/framework.hpp"
#include "plan/plan.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

namespace foreplan {

// --model, --hardware, --nodes, --plan, --tp and so on.
void add_plan_options(cxxopts::Options& options);

inline constexpr char const* schedule_names =
    "gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, v-half, v-min or dualpipe-v";
Schedule schedule_of(cxxopts::ParseResult const& parsed); // --schedule

inline constexpr char const* framework_help =
    "trainer that runs the plan: a name or a file (framework_profiles/*.json)";
Framework framework_of(cxxopts::ParseResult const& parsed); // --framework, which is there

// --layout auto
bool asks_for_balance(cxxopts::ParseResult const& parsed);

// From --plan, or from the single options.
Plan plan_of(cxxopts::ParseResult const& parsed);

// Of --nodes nodes, or as many as the plan needs.
Cluster cluster_of(cxxopts::ParseResult const& parsed, Plan const& plan);

// --allow offload: whether plans with something on host or drives are looked at. Throws InputError where the profile
// does not say what its hosts are like.
void add_allow_option(cxxopts::Options& options);
bool allows_quantized(cxxopts::ParseResult const& parsed);
bool allows_split_schedules(cxxopts::ParseResult const& parsed);
bool allows_offload(cxxopts::ParseResult const& parsed, HardwareProfile const& profile);

// Throws InputError with the first rule of the plan checker that is broken.
void refuse_illegal(Model const& model, Plan const& plan);

// What every command about one plan is about: all three read and found to go together, or an InputError.
struct PlanCase {
  Model model;
  Plan plan;
  Cluster cluster;
};
PlanCase plan_case_of(cxxopts::ParseResult const& parsed);

template <class T, std::size_t N>
T choice(cxxopts::ParseResult const& parsed, std::string const& name,
         std::array<std::pair<std::string_view, T>, N> const& values) {
  auto const text = parsed[name].as<std::string>();
  std::string valid;
  for (auto const& [known, value] : values) {
    if (text == known)
      return value;
    valid += (valid.empty() ? "" : ", ") + std::string(known);
  }
  throw InputError(fmt::format("--{} {}: must be one of {}", name, text, valid));
}

} // namespace foreplan

#include "timeline/critical_path.hpp"

#include "units/text.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

namespace foreplan {

std::string_view to_string(PathKind kind) {
  switch (kind) {
    case PathKind::gemm: return "matrix products";
    case PathKind::attention: return "attention";
    case PathKind::memory_bound: return "memory-bound kernels";
    case PathKind::tp: return "tp communication";
    case PathKind::cp: return "cp communication";
    case PathKind::dp: return "dp communication";
    case PathKind::pp: return "pp transfers";
    case PathKind::host_optimizer: return "host optimizer";
    case PathKind::host_copy: return "copies to and from the host";
    case PathKind::drive: return "drives";
    case PathKind::host: return "host";
  }
  return "?";
}

std::string_view to_string(PathPart part) {
  switch (part) {
    case PathPart::setup: return "set-up";
    case PathPart::gather: return "parameter gather";
    case PathPart::forward: return "forward";
    case PathPart::backward: return "backward";
    case PathPart::weight_gradient: return "weight gradient";
    case PathPart::transfer: return "transfer";
    case PathPart::reduction: return "gradient reduction";
    case PathPart::offload: return "copies";
    case PathPart::codes: return "quantization";
    case PathPart::optimizer: return "optimizer";
  }
  return "?";
}

Seconds sum(PathSeconds const& seconds) {
  Seconds total;
  for (Seconds part : seconds)
    total += part;
  return total;
}

namespace {

PathPart section_of(PathPart part) {
  return part == PathPart::backward || part == PathPart::weight_gradient ? PathPart::forward : part;
}

std::int64_t& count_of(PathLeg& leg, PathPart part) {
  return part == PathPart::forward ? leg.forwards : part == PathPart::backward ? leg.backwards : leg.weight_gradients;
}

// Runs of steps on one stage; a transfer belongs to the run before it (a stage may go on after waiting for its own send).
std::vector<PathLeg> runs_of(std::vector<PathStep> const& steps) {
  std::vector<PathLeg> legs;
  std::int32_t slot = -1;
  for (PathStep const& step : steps) {
    Seconds const taken(step.end - step.start);
    if (step.part == PathPart::transfer) {
      if (legs.empty())
        legs.push_back({PathPart::transfer, step.stage, step.stage});
      ++legs.back().transfers;
      legs.back().transfer_time += taken;
      continue;
    }
    PathPart const section = section_of(step.part);
    if (legs.empty() || legs.back().part != section || legs.back().last != step.stage) {
      legs.push_back({section, step.stage, step.stage});
      slot = -1;
    }
    if (section == PathPart::forward && step.slot >= 0 && step.slot != slot)
      ++count_of(legs.back(), step.part);
    if (step.slot >= 0)
      slot = step.slot;
    legs.back().time += taken;
  }
  return legs;
}

bool goes_on(PathLeg const& before, PathLeg const& leg) {
  int const step = leg.first.value() - before.last.value();
  int const direction = before.last.value() - before.first.value();
  return std::abs(step) == 1 && (direction == 0 || (direction > 0) == (step > 0)) && before.part == leg.part &&
         leg.part == PathPart::forward && before.transfers > 0 && before.forwards == leg.forwards &&
         before.backwards == leg.backwards && before.weight_gradients == leg.weight_gradients;
}

std::vector<PathLeg> joined(std::vector<PathLeg> const& runs) {
  std::vector<PathLeg> legs;
  for (PathLeg const& run : runs) {
    if (legs.empty() || !goes_on(legs.back(), run)) {
      legs.push_back(run);
      continue;
    }
    legs.back().last = run.last;
    legs.back().time += run.time;
    legs.back().transfers += run.transfers;
    legs.back().transfer_time += run.transfer_time;
  }
  return legs;
}

std::string in_words(PathLeg leg) {
  bool const several = leg.first != leg.last;
  std::string text = several ? fmt::format("stages {} to {}: ", leg.first.value(), leg.last.value())
                             : fmt::format("stage {}: ", leg.first.value());
  if (leg.part == PathPart::forward) {
    char const* separator = "";
    for (PathPart part : {PathPart::forward, PathPart::backward, PathPart::weight_gradient})
      if (std::int64_t const count = count_of(leg, part); count > 0)
        text += fmt::format("{}{} {}", std::exchange(separator, ", "), count, to_string(part));
    text += several ? " each" : "";
  } else {
    text += to_string(leg.part);
  }
  text += " (" + to_string(leg.time);
  if (leg.transfers > 0)
    text += fmt::format(" + transfer{} {}", leg.transfers > 1 ? fmt::format("s {} x", leg.transfers) : "",
                        to_string(leg.transfer_time / static_cast<double>(leg.transfers)));
  return text + ")";
}

} // namespace

CriticalPath summarize(std::vector<PathStep> const& steps, int stages) {
  CriticalPath path;
  path.by_stage.resize(static_cast<std::size_t>(stages));
  for (PathStep const& step : steps) {
    for (std::size_t k = 0; k < path_kinds; ++k)
      path.by_kind[k] += step.by_kind[k];
    if (step.part != PathPart::transfer)
      path.by_stage[step.stage.index()] += Seconds(step.end - step.start);
  }
  path.legs = joined(runs_of(steps));
  return path;
}

std::string in_words(CriticalPath const& path, std::size_t most) {
  std::size_t const count = path.legs.size();
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0)
      text += " -> ";
    if (count > most && i == most / 2) {
      std::size_t const last = count - most / 2;
      Seconds time;
      for (; i < last; ++i)
        time += path.legs[i].time + path.legs[i].transfer_time;
      text += fmt::format("{} more, back and forth between stages ({}) -> ", last - most / 2, to_string(time));
    }
    text += in_words(path.legs[i]);
  }
  return text;
}

} // namespace foreplan

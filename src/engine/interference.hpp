// The interference formula of folded_program.hpp: speeds of what runs on each device.
#pragma once

#include "engine/folded_program.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace foreplan {

inline std::uint32_t stream_bit(int stream) { return std::uint32_t{1} << stream; }

// Calls visit(stream) for every bit of the mask, lowest first.
template <class Visit>
void for_each_stream(std::uint32_t mask, Visit&& visit) {
  for (; mask != 0; mask &= mask - 1)
    visit(std::countr_zero(mask));
}

// Running items by class and stream. Starts and stops of one moment are gathered; settle() then tells whose speed is
// new.
class Interference {
public:
  explicit Interference(std::size_t classes) : devices_(classes) {}

  // `communicator`: of a transfer; -1: computation.
  void start(int rank_class, int stream, Demand const& demand, std::int32_t communicator) {
    Device& device = devices_[static_cast<std::size_t>(rank_class)];
    auto const s = static_cast<std::size_t>(stream);
    device.running |= stream_bit(stream);
    device.sm_share[s] = demand.sm_share;
    device.memory_bandwidth_share[s] = demand.memory_bandwidth_share;
    device.communicator[s] = communicator;
    device.speed[s] = 0;
    mark(rank_class);
  }

  void stop(int rank_class, int stream) {
    devices_[static_cast<std::size_t>(rank_class)].running &= ~stream_bit(stream);
    mark(rank_class);
  }

  [[nodiscard]] double speed(int rank_class, int stream) const {
    return devices_[static_cast<std::size_t>(rank_class)].speed[static_cast<std::size_t>(stream)];
  }

  // Calls visit(class, stream, communicator, old speed, new speed) for each running item whose speed has changed; the
  // old speed of one that has just started is 0.
  template <class Visit>
  void settle(Visit&& visit) {
    for (int rank_class : changed_)
      settle(rank_class, visit);
    changed_.clear();
  }

private:
  struct Device {
    std::uint32_t running = 0; // bit s: an item of stream s runs
    bool changed = false;
    std::array<double, stream_limit> sm_share{};
    std::array<double, stream_limit> memory_bandwidth_share{};
    std::array<double, stream_limit> speed{};
    std::array<std::int32_t, stream_limit> communicator{};
  };

  void mark(int rank_class) {
    if (!std::exchange(devices_[static_cast<std::size_t>(rank_class)].changed, true))
      changed_.push_back(rank_class);
  }

  template <class Visit>
  void settle(int rank_class, Visit&& visit) {
    Device& device = devices_[static_cast<std::size_t>(rank_class)];
    device.changed = false;
    double sm = 0;
    double bandwidth = 0;
    for_each_stream(device.running, [&](int stream) {
      sm += device.sm_share[static_cast<std::size_t>(stream)];
      bandwidth += device.memory_bandwidth_share[static_cast<std::size_t>(stream)];
    });
    double const bandwidth_speed = bandwidth > 1 ? 1 / bandwidth : 1;
    for_each_stream(device.running, [&](int stream) {
      auto const s = static_cast<std::size_t>(stream);
      double const others = std::max(0.0, sm - device.sm_share[s]);
      double const speed = std::max(min_speed, std::min(1 - others, bandwidth_speed));
      double const before = std::exchange(device.speed[s], speed);
      if (speed != before)
        visit(rank_class, stream, device.communicator[s], before, speed);
    });
  }

  std::vector<Device> devices_;
  std::vector<int> changed_;
};

} // namespace foreplan

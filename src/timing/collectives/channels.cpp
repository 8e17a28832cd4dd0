#include "timing/collectives/channels.hpp"

namespace foreplan {

namespace {

// Bytes below which another channel is not worth it.
double least_bytes(CollectiveAlgorithm algorithm, Protocol protocol, GroupShape const& shape) {
  constexpr double kibibyte = 1024;
  if (algorithm == CollectiveAlgorithm::direct)
    return (shape.nodes == 1 ? 512 : 128) * kibibyte;
  if (algorithm == CollectiveAlgorithm::nvls || algorithm == CollectiveAlgorithm::nvls_tree)
    return 512.0 * 512;
  switch (protocol) {
    case Protocol::ll: return 512.0 * 8 * (algorithm == CollectiveAlgorithm::ring ? shape.members : 1);
    case Protocol::ll128: return 640.0 * 8;
    case Protocol::simple: return 512.0 * 64;
  }
  return 1;
}

} // namespace

int channels_of(CollectiveAlgorithm algorithm, Protocol protocol, GroupShape const& shape, double bytes, int most) {
  constexpr int most_multicast = 16;
  bool const multicast = algorithm == CollectiveAlgorithm::nvls || algorithm == CollectiveAlgorithm::nvls_tree;
  double const wanted = bytes / least_bytes(algorithm, protocol, shape);
  int const limit = multicast ? std::min(most, most_multicast) : most;
  return wanted >= limit ? limit : std::clamp(static_cast<int>(wanted), std::min(1, limit), limit);
}

} // namespace foreplan

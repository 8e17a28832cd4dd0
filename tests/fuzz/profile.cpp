#include "cluster/links.hpp"
#include "cluster/read_profile.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace foreplan;

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  return fuzz(data, size, [](JsonReader const& reader) {
    Cluster const cluster{read_profile(reader), 100, {}};
    for (int to : {1, cluster.devices() / 2, cluster.devices() - 1})
      for (Link const link : path(cluster, Rank(0), Rank(to))) {
        if (!(capacity(cluster, link).value() > 0))
          std::abort();
        (void)describe(cluster, link);
      }
  });
}

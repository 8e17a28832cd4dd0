#include "tests/catch.hpp"
#include "units/ids.hpp"

#include <type_traits>
#include <unordered_map>

using namespace foreplan;

// An index of one kind is none of another, and no integer.
static_assert(!std::is_convertible_v<Stage, MicroBatch>);
static_assert(!std::is_constructible_v<Stage, MicroBatch>);
static_assert(!std::is_convertible_v<int, Rank>);
static_assert(!std::is_convertible_v<Rank, int>);
template <class A, class B>
concept Comparable = requires(A a, B b) {
  a < b;
};
static_assert(Comparable<SlotId, SlotId> && !Comparable<SlotId, OpId>);

TEST_CASE("an index keeps its value and its order") {
  Rank rank(3);
  CHECK(rank.value() == 3);
  CHECK((++rank).index() == 4);
  CHECK(Rank(1) < Rank(2));
  CHECK(Rank(2) == Rank(2));
}

TEST_CASE("an index is a key") {
  std::unordered_map<OpId, int> durations{{OpId(7), 1}, {OpId(8), 2}};
  CHECK(durations.at(OpId(8)) == 2);
}

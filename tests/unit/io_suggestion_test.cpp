#include "tests/catch.hpp"

#include "io/suggestion.hpp"

using namespace foreplan;

TEST_CASE("the nearest word is suggested") {
  std::string_view const words[] = {"simulate", "plan", "explain"};
  CHECK(nearest("simluate", words) == "simulate");
  CHECK(nearest("pln", words) == "plan");
  CHECK(nearest("plain", words) == "plan");
  CHECK(nearest("quux", words).empty());
  CHECK(nearest("", words).empty());
  CHECK(nearest(std::string(100'000, 'x'), words).empty());
  CHECK(suggestion("expain", words) == "did you mean \"explain\"? valid: simulate, plan, explain");
  CHECK(suggestion("quux", words) == "valid: simulate, plan, explain");
}

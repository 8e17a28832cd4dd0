// exp and erf of the CPU kernels against the C library's in double precision.
#include "tests/catch.hpp"
#include "validate/devices/cpu/elementary.hpp"

#include <cmath>

using namespace foreplan::cpu;

TEST_CASE("exponential", "[devices]") {
  double worst = 0, worst_negative = 0;
  for (int i = -87000; i <= 88000; ++i) {
    float const x = static_cast<float>(i) / 1000;
    double const exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(exponential(x)) / exact - 1));
    if (x <= 0)
      worst_negative = std::max(worst_negative, std::abs(static_cast<double>(exponential_of_negative(x)) / exact - 1));
  }
  CHECK(worst < 2e-7);
  CHECK(worst_negative < 3e-7);
  CHECK(exponential(-200) == 0);
  CHECK(exponential_of_negative(-INFINITY) == 0);
  CHECK(exponential(0) == 1);
  CHECK(std::isinf(exponential(100)));
  CHECK(std::isnan(exponential(NAN)));
  CHECK(std::isnan(exponential_of_negative(NAN)));
}

TEST_CASE("error function", "[devices]") {
  double worst = 0;
  for (int i = -6000; i <= 6000; ++i) {
    float const x = static_cast<float>(i) / 1000;
    worst = std::max(worst, std::abs(static_cast<double>(error_function(x)) - std::erf(static_cast<double>(x))));
  }
  CHECK(worst < 4e-7);
}

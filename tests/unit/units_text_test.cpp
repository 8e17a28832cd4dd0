#include "tests/catch.hpp"
#include "units/text.hpp"

#include <random>
#include <stdexcept>

using namespace foreplan;

TEST_CASE("quantities are read with decimal and binary prefixes") {
  CHECK(parse_quantity<BytesPerSecond>("450 GB/s").value() == 450e9);
  CHECK(parse_quantity<Bytes>("80 GiB").value() == 80.0 * 1024 * 1024 * 1024);
  CHECK(parse_quantity<Bytes>("1.5kB").value() == 1500);
  CHECK(parse_quantity<Seconds>("2.5 us").value() == Approx(2.5e-6));
  CHECK(parse_quantity<Seconds>("2 min").value() == 120);
  CHECK(parse_quantity<FlopsPerSecond>("989.4 TFLOP/s").value() == Approx(989.4e12));
  CHECK(parse_quantity<Flops>("1e3 GFLOP").value() == 1e12);
  // 400 Gb/s is 400e9 bits / 8
  CHECK(parse_quantity<BytesPerSecond>("400 Gb/s").value() == 50e9);
}

TEST_CASE("what is no quantity is refused") {
  for (char const* text : {"", "GB", "80", "80 GBps", "80 GB/s", "nan GB", "inf GB", "-1 GB", "1e999 GB", "1e300 PB",
                           "80 GB ", "80 gb", "0x10 GB", "8,5 GB", "+1 GB"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_quantity<Bytes>(text), std::invalid_argument);
  }
}

TEST_CASE("an unknown unit is answered with the valid ones") {
  try {
    parse_quantity<Seconds>("3 sec");
    FAIL("not refused");
  } catch (std::invalid_argument const& error) {
    CHECK(std::string(error.what()) == "has the unknown unit \"sec\"; valid units: ns, us, ms, s, min, h, µs");
  }
}

TEST_CASE("quantities are printed with three significant digits") {
  CHECK(to_string(Bytes(71.38e9)) == "71.4 GB");
  CHECK(to_string(Seconds(0.01234)) == "12.3 ms");
  CHECK(to_string(Seconds(75.31)) == "75.3 s");
  CHECK(to_string(Seconds(5400)) == "5400 s");
  CHECK(to_string(Seconds(0)) == "0 s");
  CHECK(to_string(Bytes(0)) == "0 B");
  CHECK(to_string(Bytes(999.7e6)) == "1.00 GB"); // not "1000 MB"
  CHECK(to_string(Seconds(2e-13)) == "0.0002 ns");
  CHECK(to_string(Bytes(-2.5e9)) == "-2.50 GB");
  CHECK(to_string(BytesPerSecond(50e9)) == "50.0 GB/s");
  CHECK(to_string(FlopsPerSecond(989.4e12)) == "989 TFLOP/s");
  CHECK(to_string(Flops(1.5e21)) == "1.50 ZFLOP");
  CHECK(to_binary_string(Bytes(80.0 * 1024 * 1024 * 1024)) == "80.0 GiB");
}

template <class Q>
void check_round_trip(double low_exponent, double high_exponent) {
  std::mt19937 generator(1);
  std::uniform_real_distribution<double> exponent(low_exponent, high_exponent);
  for (int i = 0; i < 1000; ++i) {
    Q value(std::pow(10.0, exponent(generator)));
    // three digits: at most half a unit of the third, 0.5 % of the first digit 1
    REQUIRE(parse_quantity<Q>(to_string(value)).value() == Approx(value.value()).epsilon(0.00501));
  }
}

TEST_CASE("what is printed can be read") {
  check_round_trip<Bytes>(0, 17);
  check_round_trip<Flops>(0, 23);
  check_round_trip<Seconds>(-10, 5);
  check_round_trip<BytesPerSecond>(0, 14);
  check_round_trip<FlopsPerSecond>(0, 20);
}

// Arithmetic: what compiles, and what does not.
template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept Comparable = requires(A a, B b) {
  a < b;
};

static_assert(Addable<Bytes, Bytes>);
static_assert(!Addable<Bytes, Seconds>);
static_assert(!Addable<Bytes, double>);
static_assert(!Addable<BytesPerSecond, FlopsPerSecond>);
static_assert(!Comparable<Bytes, Flops>);
static_assert(!Comparable<Seconds, double>);
static_assert(std::is_same_v<decltype(Bytes() / BytesPerSecond()), Seconds>);
static_assert(std::is_same_v<decltype(Flops() / Seconds()), FlopsPerSecond>);
static_assert(std::is_same_v<decltype(Seconds() / Seconds()), double>);
static_assert(!std::is_convertible_v<decltype(Bytes() * BytesPerSecond()), Seconds>);
static_assert(!std::is_convertible_v<double, Seconds>);
static_assert(!std::is_convertible_v<Seconds, double>);
static_assert(sizeof(Bytes) == sizeof(double));

TEST_CASE("bytes over a rate are seconds") { CHECK((Bytes(100) / BytesPerSecond(50)).value() == 2); }

// Physical quantities that refuse wrong arithmetic: a Bytes divided by a BytesPerSecond is Seconds, their product is
// nothing that Foreplan uses and does not convert. The size of a double, no cost at run time.
#pragma once

#include <cmath>
#include <compare>

namespace foreplan {

// A double with the dimension byte^Byte * flop^Flop * second^Second. A dimensionless result is a plain double.
template <int Byte, int Flop, int Second>
class Quantity {
public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(double value) : value_(value) {}

  // The number in base units: bytes, flops, seconds.
  [[nodiscard]] constexpr double value() const { return value_; }

  constexpr Quantity& operator+=(Quantity other) {
    value_ += other.value_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value_ -= other.value_;
    return *this;
  }
  constexpr Quantity& operator*=(double factor) {
    value_ *= factor;
    return *this;
  }
  constexpr Quantity& operator/=(double divisor) {
    value_ /= divisor;
    return *this;
  }
  constexpr Quantity operator-() const { return Quantity(-value_); }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value_ + b.value_); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value_ - b.value_); }
  friend constexpr Quantity operator*(Quantity a, double factor) { return Quantity(a.value_ * factor); }
  friend constexpr Quantity operator*(double factor, Quantity a) { return Quantity(factor * a.value_); }
  friend constexpr Quantity operator/(Quantity a, double divisor) { return Quantity(a.value_ / divisor); }
  friend constexpr auto operator<=>(Quantity, Quantity) = default;

private:
  double value_ = 0;
};

namespace detail {
template <int B, int F, int S>
constexpr auto make_quantity(double value) {
  if constexpr (B == 0 && F == 0 && S == 0)
    return value;
  else
    return Quantity<B, F, S>(value);
}
} // namespace detail

template <int B1, int F1, int S1, int B2, int F2, int S2>
constexpr auto operator*(Quantity<B1, F1, S1> a, Quantity<B2, F2, S2> b) {
  return detail::make_quantity<B1 + B2, F1 + F2, S1 + S2>(a.value() * b.value());
}

template <int B1, int F1, int S1, int B2, int F2, int S2>
constexpr auto operator/(Quantity<B1, F1, S1> a, Quantity<B2, F2, S2> b) {
  return detail::make_quantity<B1 - B2, F1 - F2, S1 - S2>(a.value() / b.value());
}

using Bytes = Quantity<1, 0, 0>;
using Flops = Quantity<0, 1, 0>;
using Seconds = Quantity<0, 0, 1>;
using BytesPerSecond = Quantity<1, 0, -1>;
using FlopsPerSecond = Quantity<0, 1, -1>;

} // namespace foreplan

// exp and erf in fp32 without branches or calls, so that compilers make SIMD loops of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace foreplan::cpu {

// Relative error below 2e-7 from -87 to 88; below it 0 (no denormals), above it infinity; NaN stays NaN. 2^n e^r with
// n = round(x / ln 2), ln 2 in two parts (Cody and Waite), e^r by its Taylor polynomial on |r| <= 0.35.
inline float exponential(float x) {
  constexpr float lowest = -87.33F;
  constexpr float highest = 88.72F;
  constexpr float shift = 0x1.8p23F;                                       // the sum's last bits are the rounded number
  float const clamped = x < lowest ? lowest : (x > highest ? highest : x); // a NaN goes through
  float const shifted = clamped * 1.44269504F + shift;
  float const n = shifted - shift;
  float const r = (clamped - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1;
  p = p * r + 1;
  // In two factors: 2^128 is no float.
  auto const exponent = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) -
                                                  std::bit_cast<std::uint32_t>(shift));
  std::int32_t const half = exponent >> 1;
  float const a = std::bit_cast<float>(static_cast<std::uint32_t>(half + 127) << 23);
  float const b = std::bit_cast<float>(static_cast<std::uint32_t>(exponent - half + 127) << 23);
  float const value = p * a * b;
  return x < lowest ? 0.0F : (x > highest ? INFINITY : value);
}

// The same for x <= 0, shorter; relative error below 3e-7.
inline float exponential_of_negative(float x) {
  constexpr float lowest = -87.33F;
  constexpr float shift = 0x1.8p23F;
  float const shifted = x * 1.44269504F + shift;
  float const n = shifted - shift;
  float const r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1;
  p = p * r + 1;
  float const power = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127) << 23); // 2^n: the last bits
  return x < lowest ? 0.0F : p * power;
}

// Absolute error below 4e-7: an odd rational approximation on |x| <= 4, beyond which erf is +-1 to a float's precision
// (coefficients: Eigen's generic_fast_erf, MPL2).
inline float error_function(float x) {
  float const y = x < -4 ? -4.0F : (x > 4 ? 4.0F : x);
  float const z = y * y;
  float p = -2.72614225801306e-10F;
  p = p * z + 2.77068142495902e-08F;
  p = p * z - 2.10102402082508e-06F;
  p = p * z - 5.69250639462346e-05F;
  p = p * z - 7.34990630326855e-04F;
  p = p * z - 2.95459980854025e-03F;
  p = p * z - 1.60960333262415e-02F;
  float q = -1.45660718464996e-05F;
  q = q * z - 2.13374055278905e-04F;
  q = q * z - 1.68282697438203e-03F;
  q = q * z - 7.37332916720468e-03F;
  q = q * z - 1.42647390514189e-02F;
  return y * p / q;
}

inline float sigmoid(float x) { return 1 / (1 + exponential(-x)); }

} // namespace foreplan::cpu

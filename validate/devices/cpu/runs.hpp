// Element-wise loops over flat operands, and sums over a run.
#pragma once

#include "validate/devices/cpu/parallel.hpp"
#include "validate/devices/cpu/values.hpp"

#include <array>

namespace foreplan::cpu {

// Calls body(at, count) for runs of [0, size), on all threads.
template <class Body>
void for_each_run(std::int64_t elements, Body const& body) {
  parallel_ranges(elements, run_length, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; at += run_length)
      body(at, std::min(run_length, end - at));
  });
}

// y[i] = function(x[i])
template <class Function>
void map(Operand const& x, Operand const& y, Function const& function) {
  for_each_run(size(y), [&](std::int64_t at, std::int64_t count) {
    std::array<float, run_length> in, out;
    float const* from = load(x, at, count, in.data());
    float* to = target(y, at, out.data());
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = function(from[i]);
    store(y, at, count, to);
  });
}

// y[i] = function(a[i], b[i])
template <class Function>
void map(Operand const& a, Operand const& b, Operand const& y, Function const& function) {
  for_each_run(size(y), [&](std::int64_t at, std::int64_t count) {
    std::array<float, run_length> in_a, in_b, out;
    float const* from_a = load(a, at, count, in_a.data());
    float const* from_b = load(b, at, count, in_b.data());
    float* to = target(y, at, out.data());
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = function(from_a[i], from_b[i]);
    store(y, at, count, to);
  });
}

// Sum of term(i) for i in [0, count), as 64 sums side by side: one alone would wait for each of its additions.
template <class Term>
float sum(std::int64_t count, Term const& term) {
  constexpr std::int64_t lanes = 64;
  std::array<float, lanes> sums{};
  std::int64_t const whole = count / lanes * lanes;
  for (std::int64_t i = 0; i < whole; i += lanes)
    for (std::int64_t lane = 0; lane < lanes; ++lane)
      sums[static_cast<std::size_t>(lane)] += term(i + lane);
  float total = 0;
  for (std::int64_t i = whole; i < count; ++i)
    total += term(i);
#pragma omp simd reduction(+ : total)
  for (std::size_t lane = 0; lane < lanes; ++lane)
    total += sums[lane];
  return total;
}

} // namespace foreplan::cpu

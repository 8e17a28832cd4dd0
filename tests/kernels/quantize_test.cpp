// Block quantization: the layout by hand, the kernels by their error bound.
#include "tests/catch.hpp"
#include "validate/devices/cpu/quantize.hpp"
#include "validate/devices/element.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

using namespace foreplan;

TEST_CASE("quantized layouts", "[devices]") {
  // 1000 elements in groups of 128: 8 scales; int4 takes 500 bytes.
  STATIC_REQUIRE(group_count({QuantizedFormat::int8, 1000, 128}) == 8);
  STATIC_REQUIRE(payload_bytes({QuantizedFormat::int8, 1000, 128}) == 1000);
  STATIC_REQUIRE(payload_bytes({QuantizedFormat::int4, 1000, 128}) == 500);
  // As few groups as hold no more than 8000 elements, of even sizes: 8001 elements in two of 4002 and 3999.
  STATIC_REQUIRE(groups_of(8000) == 1);
  STATIC_REQUIRE(groups_of(8001) == 2);
  STATIC_REQUIRE(group_size(8001, 2) == 4002);

  STATIC_REQUIRE(pack_int4(-3, 7) == 0x7d); // -3 is 1101 in the low half
  for (int even = -8; even < 8; ++even)
    for (int odd = -8; odd < 8; ++odd) {
      CHECK(low_int4(pack_int4(even, odd)) == even);
      CHECK(high_int4(pack_int4(even, odd)) == odd);
    }
  STATIC_REQUIRE(to_whole(2.5F) == 2); // ties to even
  STATIC_REQUIRE(to_whole(-3.5F) == -4);
  STATIC_REQUIRE(to_whole(2.5) == 2);
  STATIC_REQUIRE(to_whole(-126.51) == -127);
}

TEST_CASE("e4m3 by hand", "[devices]") {
  // sign, 4 bits of exponent with bias 7, 3 of fraction
  STATIC_REQUIRE(to_e4m3(1.0F) == 0x38);
  STATIC_REQUIRE(to_e4m3(-1.125F) == 0xb9);
  STATIC_REQUIRE(to_e4m3(448.0F) == 0x7e);
  STATIC_REQUIRE(to_e4m3(1e9F) == 0x7e);
  STATIC_REQUIRE(to_e4m3(0x1p-9F) == 0x01);   // the least
  STATIC_REQUIRE(to_e4m3(0x1.8p-9F) == 0x02); // a tie, to even
  STATIC_REQUIRE(to_e4m3(0x1p-10F) == 0x00);  // a tie, to even
  STATIC_REQUIRE(to_e4m3(0x1.ep-7F) == 0x08); // 7.5 of 2^-9: up, to the least normal number
  STATIC_REQUIRE(to_e4m3(1.0625F) == 0x38);   // between 1 and 1.125
  STATIC_REQUIRE(to_e4m3(1.1875F) == 0x3a);   // between 1.125 and 1.25
  STATIC_REQUIRE(from_e4m3(0x7e) == 448.0F);
  CHECK(std::isnan(from_e4m3(0x7f)));
  CHECK(to_e4m3(NAN) == 0x7f);
  for (int code = 0; code < 256; ++code)
    if ((code & 0x7f) != 0x7f)
      CHECK(to_e4m3(from_e4m3(static_cast<std::uint8_t>(code))) == code);
}

TEST_CASE("what is quantized comes back within half a step of its group", "[devices]") {
  for (QuantizedFormat format : {QuantizedFormat::int8, QuantizedFormat::int4, QuantizedFormat::fp8_e4m3})
    for (DType dtype : {DType::fp32, DType::bf16})
      for (std::int64_t elements : {1, 127, 128, 5003}) {
        QuantizedLayout const layout{format, elements, 128};
        ElementType const type = element_type(Storage::as_planned, dtype);
        std::mt19937 engine(1);
        std::normal_distribution<double> normal;
        std::vector<std::byte> x(static_cast<std::size_t>(elements * size_of(type))), back(x.size());
        for (std::int64_t i = 0; i < elements; ++i)
          store(x.data(), type, i, i < 256 ? 0 : normal(engine)); // two groups of zeros first
        std::vector<std::uint8_t> codes(static_cast<std::size_t>(payload_bytes(layout)));
        std::vector<float> scales(static_cast<std::size_t>(group_count(layout)));
        cpu::quantize(x.data(), dtype, layout, {codes.data(), scales.data()});
        cpu::dequantize({codes.data(), scales.data()}, layout, back.data(), dtype);
        double worst = 0;
        for (std::int64_t first = 0; first < elements; first += layout.group) {
          double largest = 0;
          std::int64_t const end = std::min(elements, first + layout.group);
          for (std::int64_t i = first; i < end; ++i)
            largest = std::max(largest, std::abs(load(x.data(), type, i)));
          for (std::int64_t i = first; i < end; ++i) {
            double const value = load(x.data(), type, i);
            double const error = std::abs(load(back.data(), type, i) - value);
            // Half a step of integers; of e4m3 half of the last of three bits, or of the least number. bf16 rounds
            // the result once more.
            double const scale = largest / static_cast<double>(largest_code(format));
            double const step = format == QuantizedFormat::fp8_e4m3 ? std::max(std::abs(value) / 16, scale * 0x1p-10)
                                                                    : scale / 2;
            double const rounding = dtype == DType::bf16 ? largest * 0x1p-8 : largest * 1e-6;
            worst = std::max(worst, error - step - rounding);
          }
        }
        INFO(static_cast<int>(format) << " " << to_string(dtype) << " " << elements);
        CHECK(worst <= 0);
      }
}

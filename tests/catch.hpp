// Catch2 2 and 3 under one name. Tests use TEST_CASE, SECTION, REQUIRE, CHECK and Approx.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

// The main function of the tests where Catch2 2 comes as headers only.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>

#include "tests/catch.hpp"

#include "io/input_error.hpp"
#include "validate/calibrate/csv.hpp"
#include "validate/calibrate/fit.hpp"
#include "validate/calibrate/profile_text.hpp"
#include "validate/calibrate/statistics.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>

using namespace foreplan;

namespace {

// time = a + size / b, with a = 5, b = 200: the latency and the rate of a copy.
std::vector<double> const sizes{1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000, 300000};
double copy_time(double a, double b, double size) { return a + size / b; }

FitResult fit_copy(std::vector<double> const& times, double third_prior = 1) {
  std::vector<FitParameter> const parameters{{.prior = 1, .width = 3, .lowest = 0.01, .highest = 1000},
                                             {.prior = 10, .width = 3, .lowest = 0.1, .highest = 1e5},
                                             {.prior = third_prior, .width = 0.5, .lowest = 0.1, .highest = 10}};
  return fit(parameters, sizes.size(), [&](std::span<double const> values, std::span<double> ratios) {
    for (std::size_t i = 0; i < sizes.size(); ++i)
      ratios[i] = std::log(copy_time(values[0], values[1], sizes[i]) / times[i]);
  });
}

std::string write_file(std::string const& text) {
  std::string const path = (std::filesystem::temp_directory_path() / "foreplan_calibrate_test.csv").string();
  std::ofstream(path) << text;
  return path;
}

} // namespace

TEST_CASE("a fit finds the parameters of its own model") {
  std::vector<double> times;
  for (double size : sizes)
    times.push_back(copy_time(5, 200, size));
  FitResult const result = fit_copy(times);
  CHECK(result.values[0] == Approx(5).epsilon(1e-3));
  CHECK(result.values[1] == Approx(200).epsilon(1e-3));
  CHECK(fit_copy(times).values == result.values); // the same again
}

// No row depends on the third parameter: it stays at the prior, with the prior's width.
TEST_CASE("what no row moves stays at its prior") {
  std::vector<double> times;
  for (double size : sizes)
    times.push_back(copy_time(5, 200, size));
  FitResult const result = fit_copy(times, 0.7);
  CHECK(result.values[2] == Approx(0.7));
  CHECK(result.spread[2] == Approx(0.5));
  CHECK(result.rows[2] == 0);
  CHECK(result.rows[0] > 0);
  CHECK(result.spread[0] < 0.1);
}

// One row ten times too slow: least squares would move the rate by far more.
TEST_CASE("an outlier hardly moves a fit") {
  std::vector<double> times;
  for (double size : sizes)
    times.push_back(copy_time(5, 200, size));
  times[8] *= 10;
  CHECK(fit_copy(times).values[1] == Approx(200).epsilon(0.05));
}

TEST_CASE("quantiles and summaries") {
  CHECK(quantile({3, 1, 2}, 0.5) == 2);
  CHECK(quantile({0, 10}, 0.9) == Approx(9));
  ErrorSummary const summary = summarise({std::log(1.1), std::log(0.8), std::log(1.2)});
  CHECK(summary.count == 3);
  CHECK(summary.median == Approx(0.2));
  CHECK(summary.bias == Approx(0.1));
  CHECK(log_spread({-0.1, 0.1, -0.1, 0.1}) == Approx(0.1));
}

TEST_CASE("tables of comma-separated values") {
  CsvTable const table = read_csv(write_file("name,time\n\"a, \"\"b\"\"\",1.5\r\nplain,\n"));
  REQUIRE(table.rows.size() == 2);
  CHECK(CsvRow(table, 0).text("name") == "a, \"b\"");
  CHECK(CsvRow(table, 0).required("time") == 1.5);
  CHECK(!CsvRow(table, 1).number("time"));
  CHECK(CsvRow(table, 1).text_or_empty("note").empty());
}

TEST_CASE("a table that cannot be is refused in one line") {
  auto refused = [](std::string const& text, std::string const& part) {
    try {
      CsvTable const table = read_csv(write_file(text));
      for (std::size_t i = 0; i < table.rows.size(); ++i)
        (void)CsvRow(table, i).required("time");
    } catch (InputError const& error) {
      std::string const what = error.what();
      INFO(what);
      CHECK(what.find(part) != std::string::npos);
      CHECK(what.find('\n') == std::string::npos);
      return;
    }
    FAIL("accepted: " << text);
  };
  refused("", "is empty");
  refused("name,time\na\n", "line 2: has 1 cells; must have 2");
  refused("name,time\na,fast\n", "line 2: time: \"fast\" must be a number");
  refused("name,time\na,-1\n", "must be a number of at least 0");
  refused("name,time\na,0\n", "must be a number above 0");
  refused("name,tme\na,1\n", "did you mean \"tme\"?");
}

TEST_CASE("a block is written into a profile that has comments") {
  std::string const text =
      "{\n  // {\"kernels\": 1}\n  \"name\": \"a \\\"kernels\\\": {}\",\n  \"b\": {\"kernels\": 2} // end\n}\n";
  std::string const added = with_member(text, "kernels", "\"kernels\": {\"x\": 1}");
  CHECK(added == "{\n  // {\"kernels\": 1}\n  \"name\": \"a \\\"kernels\\\": {}\",\n  \"b\": {\"kernels\": 2},\n"
                 "  \"kernels\": {\"x\": 1} // end\n}\n");
  CHECK(with_member(added, "kernels", "\"kernels\": {\"y\": [2, 3]}") ==
        "{\n  // {\"kernels\": 1}\n  \"name\": \"a \\\"kernels\\\": {}\",\n  \"b\": {\"kernels\": 2},\n"
        "  \"kernels\": {\"y\": [2, 3]} // end\n}\n");
  CHECK(with_member("{\"a\": 1, \"b\": 2}", "a", "\"a\": 7") == "{\"a\": 7, \"b\": 2}");
  CHECK(with_member("{}", "a", "\"a\": 7") == "{\"a\": 7}");
}

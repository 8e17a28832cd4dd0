// Predictions of published runs must not get worse than the committed figures: validate/calibrate/run_figures.csv, written
// by `foreplan accuracy runs --figures`.
#include "tests/catch.hpp"
#include "validate/calibrate/csv.hpp"
#include "validate/calibrate/runs_accuracy.hpp"
#include "validate/calibrate/runs_memory.hpp"

#include <algorithm>

namespace foreplan {

TEST_CASE("steps of published runs are predicted as well as committed", "[accuracy]") {
  std::vector<RunBand> const bands = run_bands(runs_accuracy().rows);
  CsvTable const figures = read_csv(FOREPLAN_PUBLISHED "/../run_figures.csv");
  constexpr double rounding = 0.0006; // the file has one decimal of a percent
  for (std::size_t i = 0; i < figures.rows.size(); ++i) {
    CsvRow const row(figures, i);
    auto const band = std::ranges::find_if(
        bands, [&](RunBand const& b) { return b.by == row.text("by") && b.value == row.text("value"); });
    INFO(row.text("by") << " " << row.text("value"));
    REQUIRE(band != bands.end());
    CHECK(band->errors.count >= row.required("count")); // rows that could be expressed still can
    CHECK(band->errors.median <= row.required("median") / 100 + rounding);
    CHECK(band->errors.p90 <= row.required("p90") / 100 + rounding);
  }
}

} // namespace foreplan

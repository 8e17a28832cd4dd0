// Predictions of published runs must not get worse than the committed figures: validate/calibrate/run_figures.csv, written
// by `foreplan accuracy runs --figures`.
#include "tests/catch.hpp"
#include "validate/calibrate/csv.hpp"
#include "validate/calibrate/runs_accuracy.hpp"
#include "validate/calibrate/runs_memory.hpp"

#include <algorithm>
#include <cmath>

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

// Pairs of schedules of one model and number of micro-batches whose measured times differ by more than 2 %.
TEST_CASE("the zero-bubble paper's schedules come out in the order in which they ran", "[accuracy]") {
  std::vector<JudgedRun> const rows = runs_accuracy().rows;
  int pairs = 0, right = 0;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      PublishedRun const &a = rows[i].run, &b = rows[j].run;
      if (a.source != "zero-bubble" || b.source != "zero-bubble" || a.model.name != b.model.name ||
          a.plan.global_batch != b.plan.global_batch || std::abs(a.step / b.step - 1) <= 0.02)
        continue;
      ++pairs;
      right += (a.step < b.step) == (rows[i].predicted < rows[j].predicted) ? 1 : 0;
    }
  CHECK(pairs == 50);
  CHECK(right >= 49);
}

} // namespace foreplan

// Predictions of published runs must not get worse than the committed figures: validate/calibrate/run_figures.csv, written
// by docs/make_accuracy (`foreplan accuracy runs --figures`, `memory --figures`, `runs --folds --figures`).
#include "tests/catch.hpp"
#include "validate/calibrate/csv.hpp"
#include "validate/calibrate/runs_accuracy.hpp"
#include "validate/calibrate/runs_fit.hpp"
#include "validate/calibrate/runs_memory.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>

namespace foreplan {

namespace {

struct Figures {
  double count = 0, median = 0, p90 = 0;
};
using FiguresOf = std::map<std::pair<std::string, std::string>, Figures>; // by, value

FiguresOf read_figures(std::string const& path) {
  CsvTable const table = read_csv(path);
  FiguresOf figures;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    CsvRow const row(table, i);
    figures[{row.text("by"), row.text("value")}] = {row.required("count"), row.number("median").value(),
                                                    row.number("p90").value()};
  }
  return figures;
}

FiguresOf figures_now() {
  std::string const path = std::filesystem::temp_directory_path() / "foreplan_run_figures.csv";
  std::ofstream(path) << run_figures_csv(runs_accuracy()) << memory_figures_csv(memory_accuracy())
                      << fold_figures_csv(run_folds());
  return read_figures(path);
}

} // namespace

TEST_CASE("steps and memory of published runs are predicted as well as committed", "[accuracy][slow]") {
  FiguresOf const now = figures_now();
  constexpr double rounding = 0.11; // the file has one decimal of a percent
  for (auto const& [name, committed] : read_figures(FOREPLAN_PUBLISHED "/../run_figures.csv")) {
    INFO(name.first << " " << name.second);
    auto const found = now.find(name);
    REQUIRE(found != now.end());
    CHECK(found->second.count >= committed.count); // rows that could be expressed still can
    CHECK(found->second.median <= committed.median + rounding);
    CHECK(found->second.p90 <= committed.p90 + rounding);
  }
}

// Pairs of schedules of one model and number of micro-batches whose measured times differ by more than 2 %.
TEST_CASE("the zero-bubble paper's schedules come out in the order in which they ran", "[accuracy][slow]") {
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
  CHECK(right == pairs);
}

} // namespace foreplan

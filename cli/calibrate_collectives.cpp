#include "cli/accuracy.hpp"

#include "cluster/read_profile.hpp"
#include "io/input_error.hpp"
#include "validate/calibrate/collectives_profile.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iostream>

namespace foreplan {

namespace {

// Of the points as the new profile predicts them, with its correction by these very points.
ErrorSummary errors_of(CollectiveModel const& model, std::vector<MeasuredCollective> const& points) {
  std::vector<double> ratios;
  for (MeasuredCollective const& point : points)
    ratios.push_back(std::log(collective_time(point.op, shape_of(point), model, point.bytes).seconds / point.seconds));
  return summarise(ratios);
}

} // namespace

int calibrate_collectives(CalibrateFiles const& files) {
  HardwareProfile const profile = read_profile(files.hardware);
  std::string const chip = chip_named(profile.chip.name);
  FabricOfChip const* known = fabric_of(chip);
  if (known == nullptr)
    throw InputError(fmt::format("{}: chip.name: \"{}\" is not a chip with measured collectives, which are {}",
                                 files.hardware, profile.chip.name, collective_chips()));
  double const nic_rate = profile.node.nic.value() * profile.node.nics / profile.node.devices;
  CollectiveTable const table = read_collective_points(files.points, chip, nic_rate);
  std::vector<MeasuredCollective> own;
  for (MeasuredCollective const& point : table.points)
    if (serves_a_fit(point) && fabric_of(point.chip)->fabric == known->fabric)
      own.push_back(point);
  CollectiveCalibration const calibration = calibrate_collectives(chip, own, profile.node.topology);
  write_profile(files, "collectives", collectives_block(calibration));
  for (auto const& [why, count] : table.left_out)
    std::cout << fmt::format("Not used: {} rows, {}.\n", count, why);
  if (own.empty()) {
    std::cout << fmt::format("No row of the fabric of {} in {}: published points alone.\n", chip, files.points);
  } else if (calibration.model.topology == collective_fabrics()[static_cast<std::size_t>(known->fabric)].topology) {
    ErrorSummary const errors = errors_of(calibration.model, own);
    std::cout << fmt::format("{}: {} points, error {:.1f} % median, {:.1f} % p90, bias {:+.1f} %\n", files.out,
                             errors.count, 100 * errors.median, 100 * errors.p90, 100 * errors.bias);
  }
  std::cout << fmt::format("{}\nBand of left-out curves: {:.1f} %\n\n", calibration.source,
                           100 * calibration.model.band)
            << collective_parameter_table(calibration.model);
  return 0;
}

} // namespace foreplan
